"""How many connections a door takes at all, before anybody has said a word: of all, and of whoever holds many.

Those that are too many for the protocol (patience.py) are told so; but one that says nothing, or is in the middle of a
TLS handshake, is not the protocol's yet, and each has a file of the daemon's. What is beyond these bounds is ended
without a word. Of a user of this host, or an address beyond it, there may be a share of all.
"""

import asyncio
import errno
import ipaddress
import resource
import socket
import struct
import threading
import time
from collections import Counter
from typing import Any

from controller.api.server import request_deadline

_UCRED = struct.Struct("3i")
_ENDED_AT_ONCE = 256  # of those that are too many, before others are heeded again
_NONE_LEFT = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_REST_SECONDS = 1.0  # the loop's own, after which it tries again
_LAST_WORD_SECONDS = 2.0
_SHARED_BITS = {4: 32, 6: 64}  # of an address: a network of IPv6 has all that follow


def holder_of(connection: Any) -> object:
    """Whose connection it is: a user of this host, or an address beyond it. None: this host's own loopback.

    What comes from there over TCP may be a proxy, which stands for many.
    """
    if connection.family == socket.AF_UNIX:
        return _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[1]
    try:
        address = ipaddress.ip_address(connection.getpeername()[0].partition("%")[0])
    except (OSError, ValueError):  # it has gone
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return None
    return ipaddress.ip_network((address, _SHARED_BITS[address.version]), strict=False)


class Accepted(socket.socket):
    """A connection; the gate hears when it is closed."""

    _gate: "Gate | None" = None
    _holder: object = None

    def held(self, gate: "Gate", holder: object) -> "Accepted":
        """It has come through that gate."""
        self._gate, self._holder = gate, holder
        return self

    def close(self) -> None:
        gate, self._gate = self._gate, None
        super().close()
        if gate is not None:
            gate.closed(self._holder)


class Gate(socket.socket):
    """A listening socket that takes no more connections than it should. `share` is what one holder may have of all."""

    def __init__(self, listening: socket.socket, share: float) -> None:
        family, kind = listening.family, listening.type
        super().__init__(family, kind, fileno=listening.detach())
        self._share, self._lock = share, threading.Lock()
        self._open: Counter[object] = Counter()
        self._all, self._rests_until = 0, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next one that there is room for. BlockingIOError when there is none now."""
        for _ in range(_ENDED_AT_ONCE):
            made, address = self._next()
            holder = holder_of(made)
            if self._take(holder):
                return Accepted(made.family, made.type, fileno=made.detach()).held(self, holder), address
            made.close()
        raise BlockingIOError

    def closed(self, holder: object) -> None:
        """One of that holder's has ended."""
        with self._lock:
            self._all -= 1
            self._open[holder] -= 1
            if not self._open[holder]:
                del self._open[holder]

    def _next(self) -> tuple[socket.socket, Any]:
        """Where there are no files left, the loop rests; it must be told once only (CPython asks on and on)."""
        if time.monotonic() < self._rests_until:
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            if error.errno in _NONE_LEFT:
                self._rests_until = time.monotonic() + _REST_SECONDS
            raise

    def _take(self, holder: object) -> bool:
        with self._lock:
            if self._all >= _bound(1.0) or (holder is not None and self._open[holder] >= _bound(self._share)):
                return False
            self._all += 1
            self._open[holder] += 1
            return True


def _bound(share: float) -> int:
    """Some more than the protocol takes, which it can tell in words that they are too many.

    Never more than a part of the files that this process may have open: it needs some for its work.
    """
    most = int(request_deadline.MOST_CONNECTIONS * share)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + most // 4 + 16
    return wanted if files == resource.RLIM_INFINITY else min(wanted, int(files // 4 * share))


class Loop(asyncio.SelectorEventLoop):
    """A door's. Whoever is let in has so long for the handshake of TLS as for the head of a request."""

    # That its client answers the end of TLS is good manners only.

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As the base class's."""
        if options.get("ssl"):
            options.setdefault("ssl_handshake_timeout", request_deadline.HEAD_SECONDS)
            options.setdefault("ssl_shutdown_timeout", _LAST_WORD_SECONDS)
        return await super().create_server(*arguments, **options)
