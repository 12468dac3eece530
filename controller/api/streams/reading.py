"""A stream that is read to its end on one thread, without a hop into the event loop for each piece."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import anyio
from starlette.requests import Request

from controller.kinds.common.chunk import Chunk

T = TypeVar("T")
MOST = 1024  # at a time; the limits of commands are lower


class Reading:
    """Reads streams whose whole content is the answer. One of each application."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(MOST)

    async def run(
        self,
        request: Request,
        open_stream: Callable[[], Iterator[Chunk]],
        read: Callable[[Iterator[Chunk]], T],
        *,
        keep: bool = False,
    ) -> T:
        """Open a stream and return what `read` makes of it. A client that disconnects meanwhile closes it.

        `keep`: it stays open after that. Raises what either raises; then it is closed.
        """
        one = _Closing(open_stream, keep=keep)
        disconnect = asyncio.create_task(_stop_on_disconnect(request, one.stop))
        try:
            return await anyio.to_thread.run_sync(one.read, read, limiter=self._limiter)
        except BaseException:
            one.stop()
            raise
        finally:
            disconnect.cancel()


class _Closing:
    """One stream, which any thread may stop."""

    def __init__(self, open_stream: Callable[[], Iterator[Chunk]], *, keep: bool) -> None:
        self._open, self._keep = open_stream, keep
        self._lock = threading.Lock()
        self._source: Iterator[Chunk] | None = None
        self._stopped = False

    def read(self, do: Callable[[Iterator[Chunk]], T]) -> T:
        source = self._open()
        try:
            with self._lock:
                self._source, stopped = source, self._stopped
            found = do(iter(()) if stopped else source)
        except BaseException:
            _close(source)
            raise
        if not self._keep:
            _close(source)
        return found

    def stop(self) -> None:
        """Close it, now or once it is open. A thread does it: closing may block."""
        with self._lock:
            source, self._stopped = self._source, True
        if source is not None:
            threading.Thread(target=_close, args=(source,), name="stream-close", daemon=True).start()


def _close(source: Iterator[Chunk]) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        close()


async def _stop_on_disconnect(request: Request, stop: Callable[[], None]) -> None:
    """Call `stop` once the client has disconnected. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stop()
