"""A stream that is read to its end on one thread, without a hop into the event loop for each piece."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar

from controller.kinds.common.chunk import Chunk

T = TypeVar("T")
_MOST = 1024  # at a time, of one event loop; the limits of commands are lower
_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("paddock_readers")


class Reading:
    """One stream that becomes an answer. Cancelling `run`, or calling `stop`, closes it and ends what it reads.

    `keep`: it stays open once it was read.
    """

    def __init__(self, open_stream: Callable[[], Iterator[Chunk]], *, keep: bool = False) -> None:
        self._open, self._keep, self._lock = open_stream, keep, threading.Lock()
        self._source: Iterator[Chunk] | None = None
        self._stopped = False

    async def run(self, do: Callable[[Iterator[Chunk]], T]) -> T:
        """Open it, and return what `do` makes of it. Raises what either raises; then it is closed."""
        try:
            return await anyio.to_thread.run_sync(self._read, do, abandon_on_cancel=True, limiter=limiter())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close it, now or once it is open. A thread does it: closing may block."""
        with self._lock:
            source, self._stopped = self._source, True
        if source is not None:
            threading.Thread(target=_close, args=(source,), name="stream-close", daemon=True).start()

    def _read(self, do: Callable[[Iterator[Chunk]], T]) -> T:
        source = self._open()
        stays_open = False
        try:
            with self._lock:
                self._source, stopped = source, self._stopped
            outcome = do(iter(()) if stopped else source)
            stays_open = self._keep and not stopped
            return outcome
        finally:
            if not stays_open:
                _close(source)


def limiter() -> anyio.CapacityLimiter:
    """Return the limiter of threads that wait for sandboxes: other work never waits for these."""
    try:
        return _LIMITER.get()
    except LookupError:
        new_limiter = anyio.CapacityLimiter(_MOST)
        _LIMITER.set(new_limiter)
        return new_limiter


def _close(source: Iterator[Chunk]) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        with contextlib.suppress(ValueError):  # a generator that another thread runs: it is read to its end
            close()
