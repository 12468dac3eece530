"""Copies between sockets within the kernel (splice), where it supports that."""

import contextlib
import fcntl
import functools
import os
import socket
from collections.abc import Callable

_PIPE_BYTES = 1 << 20
_URGENT_BYTES = 1 << 12  # fits in a pipe of one page


@functools.cache
def can_splice() -> bool:
    """Tell if this system supports splice; tried once."""
    if not hasattr(os, "splice"):
        return False
    ours, peer_end = socket.socketpair()
    try:
        with ours, peer_end, Pipe() as pipe:
            peer_end.sendall(b"x")
            pipe.drain(ours, pipe.fill(ours))
            return peer_end.recv(1) == b"x"
    except OSError:
        return False


class Pipe:
    """Pipe between two blocking sockets, for one thread; it is empty before each `fill`."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._out, self._in = os.pipe()
        with contextlib.suppress(OSError):  # it would only be slower
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def __enter__(self) -> "Pipe":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        os.close(self._in)

    def fill(self, source: socket.socket, most: int = _PIPE_BYTES) -> int:
        """Wait for bytes, and take at most `most`. 0 at the end. Raises OSError."""
        if count := os.splice(source.fileno(), self._in, min(most, _PIPE_BYTES)):
            return count
        # Or it stopped at TCP's urgent byte, which only recv(2) skips.
        data = source.recv(min(most, _URGENT_BYTES))
        return os.write(self._in, data) if data else 0

    def drain(self, target: socket.socket, count: int, wait: Callable[[], None] | None = None) -> None:
        """Write the taken bytes to `target`. Raises OSError.

        `wait` is called on each send timeout of the socket; an exception of it ends the call.
        """
        while count:
            try:
                count -= os.splice(self._out, target.fileno(), count)
            except BlockingIOError:
                if wait is None:
                    raise
                wait()
