"""Limits on accepted connections of one listener, in total and per holder.

The protocol (request_deadline.py) answers 429 to connections over its own limit. A silent connection, or one in a TLS
handshake, has not reached the protocol yet, but holds a file descriptor. Connections over these limits are closed
without an answer. One user of this host, or one remote address, gets a share of the total.
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
_MAX_CLOSED = 256  # connections over the limit, closed in one call of accept
_OUT_OF_FILES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_PAUSE_SECONDS = 1.0  # as the event loop's own pause before it tries again
_TLS_SHUTDOWN_SECONDS = 2.0
_SHARED_BITS = {4: 32, 6: 64}  # of an address: an IPv6 client has a whole /64


def connection_holder(connection: Any) -> object:
    """Return the holder of a connection: a uid of this host or a remote network. None for TCP over loopback.

    A client on loopback may be a proxy, which stands for many.
    """
    if connection.family == socket.AF_UNIX:
        return _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[1]
    try:
        address = ipaddress.ip_address(connection.getpeername()[0].partition("%")[0])
    except (OSError, ValueError):  # disconnected
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return None
    return ipaddress.ip_network((address, _SHARED_BITS[address.version]), strict=False)


class Accepted(socket.socket):
    """A connection that informs its limiter when it is closed."""

    _limiter: "ConnectionLimiter | None" = None
    _holder: object = None

    def attach(self, limiter: "ConnectionLimiter", holder: object) -> "Accepted":
        """Attach the limiter that accepted this connection."""
        self._limiter, self._holder = limiter, holder
        return self

    def close(self) -> None:
        limiter, self._limiter = self._limiter, None
        super().close()
        if limiter is not None:
            limiter.connection_closed(self._holder)


class ConnectionLimiter(socket.socket):
    """A listening socket with a limit on its open connections. One holder may have `share` of them."""

    def __init__(self, listening: socket.socket, share: float) -> None:
        family, kind = listening.family, listening.type
        super().__init__(family, kind, fileno=listening.detach())
        self._share, self._lock = share, threading.Lock()
        self._open: Counter[object] = Counter()
        self._all, self._paused_until = 0, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection within the limits. Raises BlockingIOError when there is none now."""
        for _ in range(_MAX_CLOSED):
            sock, address = self._next()
            holder = connection_holder(sock)
            if self._take(holder):
                return Accepted(sock.family, sock.type, fileno=sock.detach()).attach(self, holder), address
            sock.close()
        raise BlockingIOError

    def connection_closed(self, holder: object) -> None:
        """Release one connection of that holder."""
        with self._lock:
            self._all -= 1
            self._open[holder] -= 1
            if not self._open[holder]:
                del self._open[holder]

    def _next(self) -> tuple[socket.socket, Any]:
        """Accept one connection. Out of file descriptors, raise the error once, then pause: CPython retries at once."""
        if time.monotonic() < self._paused_until:
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            if error.errno in _OUT_OF_FILES:
                self._paused_until = time.monotonic() + _PAUSE_SECONDS
            raise

    def _take(self, holder: object) -> bool:
        with self._lock:
            if self._all >= _bound(1.0) or (holder is not None and self._open[holder] >= _bound(self._share)):
                return False
            self._all += 1
            self._open[holder] += 1
            return True


def _bound(share: float) -> int:
    """Return the limit on connections: some more than the protocol takes, so that it can answer 429 to the rest.

    At most a quarter of this process's file descriptors.
    """
    most = int(request_deadline.MOST_CONNECTIONS * share)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = most + most // 4 + 16
    return limit if files == resource.RLIM_INFINITY else min(limit, int(files // 4 * share))


class ListenerLoop(asyncio.SelectorEventLoop):
    """Event loop of a listener. A TLS handshake has the same deadline as the head of a request."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As the base class, with TLS deadlines. Not every client answers the end of TLS."""
        if options.get("ssl"):
            options.setdefault("ssl_handshake_timeout", request_deadline.HEAD_SECONDS)
            options.setdefault("ssl_shutdown_timeout", _TLS_SHUTDOWN_SECONDS)
        return await super().create_server(*arguments, **options)

    def _make_socket_transport(
        self, sock: Any, protocol: Any, waiter: Any = None, *, extra: Any = None, server: Any = None
    ) -> asyncio.Transport:
        """As the base class, which forgets to close a connection that was accepted just before its server closed."""
        if server is not None and not server.sockets:
            sock.close()
            raise ConnectionAbortedError("the server is closed")
        make: Any = super()._make_socket_transport  # type: ignore[misc]
        transport: asyncio.Transport = make(sock, protocol, waiter, extra=extra, server=server)
        return transport
