"""Stalled clients: the connection of a client that stopped reading is cut, for logs, exec, files, ports and watches.

A client is stalled while bytes wait for it here (so its socket is full) and the kernel freed no unsent bytes for
`seconds`. The kernel frees them in steps of about 36 KiB, so a slow reader must take that much in this time.
A client that disconnected while nothing was read from it is cut as well: nothing else would notice.
The reader of a command may pause for longer (its `pause_seconds`): the command waits meanwhile, and nothing is lost.
"""

import array
import asyncio
import fcntl
import select
import socket
import termios
from collections.abc import Callable
from typing import Any, Protocol

import structlog

STALL_SECONDS = 1.5  # with polling and clean-up, all is freed within 2 s
_POLLS = 8  # within that time
_log = structlog.get_logger("paddock.api")


class Carrier(Protocol):
    """A user of the connection's socket: bytes that `came` for the client, and how many are still `waiting`."""

    @property
    def came(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class ClientTransport:
    """A transport that counts the bytes written to it.

    Once it has a `tunnel`, only the tunnel uses the socket.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.tunnel: Carrier | None = None
        self.pause_seconds = 0.0
        self._written = self._taken = self._unsent = 0
        self._reading = True
        self._since: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """As the transport's."""
        if self.tunnel is None:
            self._written += len(data)
            self._transport.write(data)

    def close(self) -> None:
        """As the transport's, once: a second close breaks a TLS transport's state (CPython 3.11)."""
        if not self._transport.is_closing():
            self._transport.close()

    @property
    def bytes_written(self) -> int:
        """Bytes written so far."""
        return self._written

    def pause_reading(self) -> None:
        """As the transport's."""
        self._reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """As the transport's."""
        if self.tunnel is None:
            self._reading = True
            self._transport.resume_reading()

    @property
    def over(self) -> bool:
        """True once the connection is closed and its buffer is sent."""
        return self._transport.is_closing() and not self._transport.get_write_buffer_size()

    def stuck_seconds(self, now: float, unsent: Callable[[socket.socket], int]) -> float:
        """Return for how long the client has read nothing, or has been disconnected unnoticed."""
        waiting, bytes_written = self._transport.get_write_buffer_size(), self._written
        if self.tunnel is not None:
            waiting, bytes_written = waiting + self.tunnel.waiting, bytes_written + self.tunnel.came
        if not waiting and (self._reading or not self.is_disconnected):
            self._since = None
            return 0.0
        read_bytes, unsent_now = bytes_written - waiting, unsent(self._transport.get_extra_info("socket"))
        if self._since is None or read_bytes != self._taken or unsent_now < self._unsent:
            self._since = now
        self._taken, self._unsent = read_bytes, unsent_now
        return now - self._since

    @property
    def is_disconnected(self) -> bool:
        """True once the client has closed its side."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLRDHUP)
        return bool(poll.poll(0))


def unsent_bytes(sock: socket.socket) -> int:
    """Return the bytes in the kernel that the peer has not read (Unix) or acknowledged (TCP); 0 once closed."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, count)
    except (OSError, ValueError):  # ValueError: it was closed meanwhile
        return 0
    return count[0]


class StalledClients:
    """The connections of one event loop, polled while there are any."""

    def __init__(self, seconds: float = STALL_SECONDS, unsent: Callable[[socket.socket], int] = unsent_bytes) -> None:
        self._seconds, self._unsent = seconds, unsent
        self._links: set[ClientTransport] = set()

    def watch(self, transport: asyncio.Transport) -> ClientTransport:
        """Poll this connection from now on; write to the returned transport."""
        link = ClientTransport(transport)
        if not self._links:
            self._poll_later(asyncio.get_running_loop())
        self._links.add(link)
        return link

    def poll(self, now: float) -> None:
        """Cut stalled connections. `now` is a monotonic time."""
        for link in tuple(self._links):
            if link.over:
                self._links.discard(link)
            elif self._is_stalled(link, link.stuck_seconds(now, self._unsent)):
                self._links.discard(link)
                _log.info("stalled client disconnected", seconds=self._seconds)
                link.abort()

    def _is_stalled(self, link: ClientTransport, seconds: float) -> bool:
        """Tell whether it has stalled for so many seconds that it is cut; one that has left may not pause."""
        return seconds >= self._seconds and (seconds >= link.pause_seconds or link.is_disconnected)

    def _poll_later(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(self._seconds / _POLLS, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.poll(loop.time())
        finally:  # an error of one must not stop the polling of all others
            if self._links:
                self._poll_later(loop)
