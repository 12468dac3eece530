"""Ends the connection of a client that has stopped reading, whatever it is that streams: log, exec, file, port, watch.

A client is stalled while bytes wait for it here (so its socket is full) and the kernel could free none of those before
them for so long: its connection is cut, and all that it held is freed. The kernel frees them in steps of some 36 KiB: a
slow reader that takes as many within that time goes on. A connection also ends whose client has gone while nothing was
read from it: nobody would notice otherwise.
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

STALL_SECONDS = 1.5  # with the time to look, and to end what was held, all is freed within 2 s
_LOOKS = 8  # within that time
_log = structlog.get_logger("paddock.api")


class Carrier(Protocol):
    """What uses a connection's socket itself: bytes that `came` for its client, and of these, those still `waiting`."""

    @property
    def came(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class Link:
    """A transport that counts what is written to it. All else of it is as it was.

    Once it has a `tunnel`, only that reads from its socket and writes to it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.tunnel: Carrier | None = None
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
        """As the transport's, once: by a second time one of TLS forgets what it is asked about (CPython 3.11)."""
        if not self._transport.is_closing():
            self._transport.close()

    @property
    def written(self) -> int:
        """Bytes that were written to it so far."""
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
        """Whether there is nothing more to wait for."""
        return self._transport.is_closing() and not self._transport.get_write_buffer_size()

    def stuck_seconds(self, now: float, unsent: Callable[[socket.socket], int]) -> float:
        """For how long its client has taken nothing of what waits for it, or is gone unnoticed."""
        waiting, written = self._transport.get_write_buffer_size(), self._written
        if self.tunnel is not None:
            waiting, written = waiting + self.tunnel.waiting, written + self.tunnel.came
        if not waiting and (self._reading or not self._is_gone()):
            self._since = None
            return 0.0
        taken, left = written - waiting, unsent(self._transport.get_extra_info("socket"))
        if self._since is None or taken != self._taken or left < self._unsent:
            self._since = now
        self._taken, self._unsent = taken, left
        return now - self._since

    def _is_gone(self) -> bool:
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLRDHUP)
        return bool(poll.poll(0))


def unsent_bytes(sock: socket.socket) -> int:
    """Bytes in the kernel that the other side has not read (Unix) or acknowledged (TCP); 0 once it is closed."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, count)
    except (OSError, ValueError):  # ValueError: it was closed meanwhile
        return 0
    return count[0]


class Stalls:
    """Looks after the connections of one event loop for as long as there are any."""

    def __init__(self, seconds: float = STALL_SECONDS, unsent: Callable[[socket.socket], int] = unsent_bytes) -> None:
        self._seconds, self._unsent = seconds, unsent
        self._links: set[Link] = set()

    def watch(self, transport: asyncio.Transport) -> Link:
        """Look after it from now on; what writes must write to what is returned."""
        link = Link(transport)
        if not self._links:
            self._look_later(asyncio.get_running_loop())
        self._links.add(link)
        return link

    def look(self, now: float) -> None:
        """Cut what is stuck. `now` is on any clock that never goes back."""
        for link in tuple(self._links):
            if link.over:
                self._links.discard(link)
            elif link.stuck_seconds(now, self._unsent) >= self._seconds:
                self._links.discard(link)
                _log.info("a client that took nothing any more was cut off", seconds=self._seconds)
                link.abort()

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(self._seconds / _LOOKS, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.look(loop.time())
        finally:  # an error with one of them must not end the watch over all others
            if self._links:
                self._look_later(loop)
