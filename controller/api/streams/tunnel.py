"""Tunnel between a client's Unix socket and a socket in a sandbox, with splice(2): no bytes are copied through here.

On the client's socket each piece follows its length, four bytes (big-endian). The length 0 ends a direction; the other
goes on. A connection that closes without it failed.

Beside the frames of a WebSocket, which serve every other client, it is a second format for the same bytes: frames take
twice the processor time and reach a quarter of the rate, where 0.7 of a plain relay is the goal (tests/README.md).
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

from controller.api.server.peer_credentials import CONNECTION
from controller.api.server.stalled_clients import Carrier, ClientTransport

_LENGTH = struct.Struct(">I")
_PIPE_BYTES = 1 << 20
_URGENT_BYTES = 1 << 12  # what a pipe of a single page takes
_MOVE_AND_DO_NOT_WAIT = 3  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK, which Python does not name
_STEPS = 8  # steps in a row, before the event loop runs others


class Sock(Protocol):
    """The part of a transport's socket that is used here."""

    def fileno(self) -> int:
        """As the socket's."""
        ...


class Direction(ABC):
    """One direction, through a pipe. `held` bytes are in it, `came` were received so far."""

    def __init__(self, source: socket.socket, target: socket.socket, over: Callable[[OSError | None], None]) -> None:
        """Connect two non-blocking sockets. Raises OSError when no pipe can be made."""
        self._source, self._target, self._over = source, target, over
        self._loop = asyncio.get_running_loop()
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # only slower
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.held = self.came = 0
        self._length = b""  # of a piece: its bytes still to send, or received
        self._closed = False

    def advance(self) -> None:
        """Move what can be moved now, and continue when there is more."""
        for _ in range(_STEPS):
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
        self._loop.call_soon(self.advance)

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
        """Read from the source into the pipe. Raises BlockingIOError when there is nothing."""

    def _fill(self, most: int) -> int:
        """Read up to so many bytes into the empty pipe; return 0 at the end."""
        try:
            count = os.splice(self._source.fileno(), self._in, most, flags=_MOVE_AND_DO_NOT_WAIT)
        except BlockingIOError:
            # Or splice stopped before a TCP urgent byte, which only recv(2) skips: the socket would stay readable.
            count = os.write(self._in, data) if (data := self._source.recv(min(most, _URGENT_BYTES))) else 0
        self.held += count
        self.came += count
        return count

    def _writable(self) -> None:
        self._loop.remove_writer(self._target)
        self.advance()

    def _readable(self) -> None:
        self._loop.remove_reader(self._source)
        self.advance()


class ToClient(Direction):
    """The direction to the client: each piece follows its length, and 0 ends it."""

    _ended = False

    @property
    def waiting(self) -> int:
        """Bytes that the client's socket has not accepted yet."""
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


class ToSandbox(Direction):
    """The direction from the client, by its lengths. After its end a disconnect is still noticed."""

    _left = 0  # of the current piece
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
            raise ConnectionResetError("the client disconnected")
        if self._ended:
            raise ConnectionResetError("the client sent more after its end")
        if len(self._length) == _LENGTH.size:
            (self._left,), self._length = _LENGTH.unpack(self._length), b""
            self._ended = not self._left
            if self._ended:
                self._target.shutdown(socket.SHUT_WR)
                self._over(None)


class Tunnel:
    """Both directions. Close it in the end; the sandbox's socket stays with its owner.

    `over` is done when both have ended, or holds the first error.
    """

    def __init__(self, client: Sock, sandbox_sock: socket.socket) -> None:
        """Raises OSError when out of file descriptors. Nothing else may watch the sandbox's socket."""
        self.over: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self._left = 2
        with contextlib.ExitStack() as stack:
            # A duplicate: the event loop refuses to watch a transport's descriptor.
            mine = stack.enter_context(socket.socket(fileno=os.dup(client.fileno())))
            self._to_sandbox = ToSandbox(mine, sandbox_sock, self._one_is_over)
            stack.callback(self._to_sandbox.close)
            self._to_client = ToClient(sandbox_sock, mine, self._one_is_over)
            stack.callback(self._to_client.close)
            sandbox_sock.setblocking(False)
            self._held = stack.pop_all()

    @property
    def came(self) -> int:
        """Bytes received for the client."""
        return self._to_client.came

    @property
    def waiting(self) -> int:
        """Bytes of these that the client's socket has not accepted yet."""
        return self._to_client.waiting

    def start(self) -> None:
        """Start both directions."""
        self._to_sandbox.advance()
        self._to_client.advance()

    def close(self) -> None:
        """Stop at once. May be called again."""
        self._held.close()
        self.over.cancel()

    def _one_is_over(self, error: OSError | None) -> None:
        self._left -= 1
        if error is not None:
            # At once: a socket reports its error once; the other direction would take it for a clean end.
            self._held.close()
        if not self.over.done() and (error is not None or not self._left):
            self.over.set_result(error)


def local_transport(websocket: WebSocket, protocol: str) -> ClientTransport | None:
    """Return the transport of a client on the Unix socket that offers that subprotocol; else None.

    None also while earlier responses are unsent.
    """
    link: ClientTransport | None = websocket.scope["state"].get(CONNECTION)
    if link is None or protocol not in websocket.scope.get("subprotocols", []):
        return None
    is_local = link.get_extra_info("socket").family == socket.AF_UNIX and not link.get_write_buffer_size()
    return link if is_local else None


async def hand_over(websocket: WebSocket, link: ClientTransport, protocol: str, carrier: Carrier) -> bool:
    """Accept the WebSocket and give its socket to the carrier. Return False if the client disconnected."""
    link.pause_reading()  # bytes after the handshake are not the WebSocket's
    before = link.bytes_written
    await websocket.accept(subprotocol=protocol)
    if link.bytes_written == before:
        return False
    if link.get_write_buffer_size():  # the carrier's bytes would overtake it
        link.abort()
        return False
    link.tunnel = carrier
    return True


async def wait_for_disconnect(websocket: WebSocket) -> None:
    """Wait until the client disconnects, or its token ends."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
