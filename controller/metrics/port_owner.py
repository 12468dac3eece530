"""Owner of a listening TCP port of this host, from /proc. For messages only."""

import os
from collections.abc import Iterator
from pathlib import Path

_LISTEN = "0A"
_PROC = Path("/proc")


def port_owner(port: int, proc: Path = _PROC) -> str:
    """Return `pid 123 (name)` of a listener on that port; "" if unknown (other users' need root).

    The name is the bare command: arguments may hold secrets.
    """
    inodes = set(_listening_inodes(port, proc))
    return next((_describe(pid, proc) for pid in _pids(proc) if inodes and _holds(pid, inodes, proc)), "")


def _listening_inodes(port: int, proc: Path) -> Iterator[str]:
    """Yield the socket inodes of all listeners on the port, IPv4 and IPv6."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _pids(proc: Path) -> list[str]:
    return sorted((name for name in os.listdir(proc) if name.isdigit()), key=int)


def _holds(pid: str, inodes: set[str], proc: Path) -> bool:
    links = {f"socket:[{inode}]" for inode in inodes}
    folder = proc / pid / "fd"
    try:
        return any(_target(folder / name) in links for name in os.listdir(folder))
    except OSError:  # gone meanwhile, or another user's
        return False


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _describe(pid: str, proc: Path) -> str:
    try:
        return f"pid {pid} ({(proc / pid / 'comm').read_text(errors='replace').strip()})"
    except OSError:
        return f"pid {pid}"
