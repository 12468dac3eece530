"""A stream that is read to its end on one thread. Cancelling closes it, which ends what it reads."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar

from controller.kinds.common.chunk import Chunk
from controller.ports import StreamError
from controller.service.errors import ServiceUnavailable

T = TypeVar("T")
_MOST = 1024  # at a time, of one event loop; the limits of commands are lower
_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("paddock_mcp_readers")


async def read(open_stream: Callable[[], Iterator[Chunk]], do: Callable[[Iterator[Chunk]], T]) -> T:
    """Open a stream, and return what `do` makes of it. Raises what either raises; a StreamError as unavailable."""
    one = _Stream(open_stream)
    try:
        return await anyio.to_thread.run_sync(one.read, do, abandon_on_cancel=True, limiter=limiter())
    except StreamError as error:
        raise ServiceUnavailable(str(error)) from error
    except BaseException:
        one.stop()
        raise


def limiter() -> anyio.CapacityLimiter:
    """Return the limiter of threads that wait for sandboxes: other calls never wait for these."""
    try:
        return _LIMITER.get()
    except LookupError:
        made = anyio.CapacityLimiter(_MOST)
        _LIMITER.set(made)
        return made


class _Stream:
    """One stream, which any thread may stop."""

    def __init__(self, open_stream: Callable[[], Iterator[Chunk]]) -> None:
        self._open, self._lock = open_stream, threading.Lock()
        self._source: Iterator[Chunk] | None = None
        self._stopped = False

    def read(self, do: Callable[[Iterator[Chunk]], T]) -> T:
        source = self._open()
        try:
            with self._lock:
                self._source, stopped = source, self._stopped
            return do(iter(()) if stopped else source)
        finally:
            _close(source)

    def stop(self) -> None:
        """Close it, now or once it is open, on a thread: closing may block."""
        with self._lock:
            source, self._stopped = self._source, True
        if source is not None:
            threading.Thread(target=_close, args=(source,), name="stream-close", daemon=True).start()


def _close(source: Iterator[Chunk]) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        with contextlib.suppress(ValueError):  # a generator that another thread runs: it is read to its end
            close()
