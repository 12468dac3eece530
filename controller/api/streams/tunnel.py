"""Carries bytes between a client's Unix socket and a socket in a box within the kernel: none is copied through here.

On the client's socket each piece is told by its length, four bytes (big-endian); the length 0 says that its sender has
no more, and the other direction goes on. Whatever ends before that, in either direction, broke.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from fastapi import WebSocket

from controller.api.server.peer_credentials import LINK
from controller.api.streams.stalled_clients import Carrier, Link

_LENGTH = struct.Struct(">I")
_PIPE_BYTES = 1 << 20
_URGENT_BYTES = 1 << 12  # what a pipe of a single page takes
_MOVE_AND_DO_NOT_WAIT = 3  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK, which Python does not name
_TURNS = 8  # then others of the event loop have theirs


class Sock(Protocol):
    """What is asked of a transport's socket."""

    def fileno(self) -> int:
        """As the socket's."""
        ...


class Way(ABC):
    """One direction, by way of a pipe. `held` bytes are in it, `came` have come so far."""

    def __init__(self, source: socket.socket, target: socket.socket, over: Callable[[OSError | None], None]) -> None:
        """From a socket to another, neither of which blocks.

        Raises OSError where there is no pipe to be had.
        """
        self._source, self._target, self._over = source, target, over
        self._loop = asyncio.get_running_loop()
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # it would only be slower
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.held = self.came = 0
        self._length = b""  # of a piece: what has to be sent of it, or has come of it
        self._closed = False

    def go_on(self) -> None:
        """Move what can be moved now, and come back when there is more."""
        for _ in range(_TURNS):
            if self._closed:
                return
            giving = self._giving()
            try:
                if giving:
                    self._give()
                else:
                    self._take()
            except BlockingIOError:
                if giving:
                    self._loop.add_writer(self._target, self._writable)
                else:
                    self._loop.add_reader(self._source, self._readable)
                return
            except OSError as error:
                self._over(error)
                return
        self._loop.call_soon(self.go_on)

    def close(self) -> None:
        """Stop. May be called again."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._source)
            self._loop.remove_writer(self._target)
            os.close(self._out)
            os.close(self._in)

    def _giving(self) -> bool:
        return bool(self.held)

    def _give(self) -> None:
        self.held -= os.splice(self._out, self._target.fileno(), self.held, flags=_MOVE_AND_DO_NOT_WAIT)

    @abstractmethod
    def _take(self) -> None:
        """Take what the source has, as far as there is room. Raises BlockingIOError where it has nothing."""

    def _fill(self, most: int) -> int:
        """Take up to so many bytes into the pipe, which is empty. 0 at the end."""
        try:
            count = os.splice(self._source.fileno(), self._in, most, flags=_MOVE_AND_DO_NOT_WAIT)
        except BlockingIOError:
            # Or it has stopped before TCP's urgent byte, which only recv(2) goes past: it would stay readable for ever.
            count = os.write(self._in, data) if (data := self._source.recv(min(most, _URGENT_BYTES))) else 0
        self.held += count
        self.came += count
        return count

    def _writable(self) -> None:
        self._loop.remove_writer(self._target)
        self.go_on()

    def _readable(self) -> None:
        self._loop.remove_reader(self._source)
        self.go_on()


class ToClient(Way):
    """Tells the length of each piece. Its last is told the length 0."""

    _ended = False

    @property
    def waiting(self) -> int:
        """Bytes that the client's socket has not taken yet."""
        return self.held + len(self._length)

    def _giving(self) -> bool:
        return bool(self._length or self.held)

    def _give(self) -> None:
        if not self._length:
            super()._give()
            return
        self._length = self._length[self._target.send(self._length) :]
        if self._ended and not self._length:
            self._over(None)
            self.close()

    def _take(self) -> None:
        count = self._fill(_PIPE_BYTES)
        self._ended = not count
        self._length = _LENGTH.pack(count)
        self.came += _LENGTH.size


class ToBox(Way):
    """Goes by the lengths that the client tells. After its end it is still looked whether the client is there."""

    _left = 0  # of the piece that is coming
    _ended = False

    def _take(self) -> None:
        if self._left:
            count = self._fill(self._left if self._left < _PIPE_BYTES else _PIPE_BYTES)
            self._left -= count
        else:
            data = self._source.recv(_LENGTH.size - len(self._length))
            count = len(data)
            self._length += data
        if not count:
            raise ConnectionResetError("the client has gone")
        if self._ended:
            raise ConnectionResetError("the client sent more after its end")
        if len(self._length) == _LENGTH.size:
            (self._left,), self._length = _LENGTH.unpack(self._length), b""
            self._ended = not self._left
            if self._ended:
                self._target.shutdown(socket.SHUT_WR)
                self._over(None)


class Tunnel:
    """Both directions. Close it; the box's socket is left to whose it is.

    `over` is done when both have ended, or with the error when something broke.
    """

    def __init__(self, client: Sock, box: socket.socket) -> None:
        """Raises OSError where there are no more handles. The event loop must not watch the box's socket elsewhere."""
        self.over: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self._left = 2
        with contextlib.ExitStack() as held:
            # A handle of our own: the event loop does not let anybody watch one that is a transport's.
            mine = held.enter_context(socket.socket(fileno=os.dup(client.fileno())))
            self._to_box = ToBox(mine, box, self._one_is_over)
            held.callback(self._to_box.close)
            self._to_client = ToClient(box, mine, self._one_is_over)
            held.callback(self._to_client.close)
            box.setblocking(False)
            self._held = held.pop_all()

    @property
    def came(self) -> int:
        """Bytes that came for the client."""
        return self._to_client.came

    @property
    def waiting(self) -> int:
        """Of these, the ones that its socket has not taken yet."""
        return self._to_client.waiting

    def start(self) -> None:
        """Carry, from now on."""
        self._to_box.go_on()
        self._to_client.go_on()

    def close(self) -> None:
        """Stop, wherever it is. May be called again."""
        self._held.close()
        self.over.cancel()

    def _one_is_over(self, error: OSError | None) -> None:
        self._left -= 1
        if error is not None:
            # At once: a socket tells its error but once, and would look to the other direction like a good end.
            self._held.close()
        if not self.over.done() and (error is not None or not self._left):
            self.over.set_result(error)


def near(websocket: WebSocket, protocol: str) -> Link | None:
    """The connection of a client that offers that subprotocol on the Unix socket; None: carry it another way.

    Of the answers before this one nothing is left to send.
    """
    link: Link | None = websocket.scope["state"].get(LINK)
    if link is None or protocol not in websocket.scope.get("subprotocols", []):
        return None
    is_near = link.get_extra_info("socket").family == socket.AF_UNIX and not link.get_write_buffer_size()
    return link if is_near else None


async def take_over(websocket: WebSocket, link: Link, protocol: str, carrier: Carrier) -> bool:
    """Shake hands; from then on its socket is the carrier's. False: whoever asked has gone, or is told by others."""
    link.pause_reading()  # what comes behind the handshake is none of the WebSocket's
    before = link.written
    await websocket.accept(subprotocol=protocol)
    if link.written == before:
        return False
    if link.get_write_buffer_size():  # what is carried would go in between
        link.abort()
        return False
    link.tunnel = carrier
    return True


async def gone(websocket: WebSocket) -> None:
    """Wait until the connection is no more, or must not be."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
