"""The uid behind a connection on the loopback, from the kernel's table of sockets."""

import os
import socket
import struct


def _entry(address: tuple[str, int]) -> bytes:
    """Write an address as /proc/net/tcp does: the IPv4 address as a number of this machine's byte order."""
    number = struct.unpack("=I", socket.inet_aton(address[0]))[0]
    return b"%08X:%04X" % (number, address[1])


def uid_of(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the uid that owns the other end of a connection; None if the kernel does not list it any more."""
    wanted = _entry(peer), _entry(own)
    with open("/proc/net/tcp", "rb") as table:
        next(table, None)
        for line in table:
            fields = line.split(None, 8)
            if (fields[1], fields[2]) == wanted:
                return int(fields[7])
    return None


class CallerPolicy:
    """Which sockets may speak with the agent: `callers: Paddock` or `Anyone`."""

    def __init__(self, callers: str) -> None:
        self._own = os.geteuid()
        self.checks = callers == "Paddock" and self._own != 0
        if callers == "Anyone":
            self.status = "Anyone"
        elif self.checks:
            self.status = "Paddock"
        else:
            self.status = "Paddock, not enforced: the sandbox runs as root and can't be told from the daemon"

    def allows(self, peer: tuple[str, int], own: tuple[str, int]) -> bool:
        if not self.checks:
            return True
        uid = uid_of(peer, own)
        return uid is not None and uid != self._own
