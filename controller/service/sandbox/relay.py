"""Relay from a blocking stream into the event loop, on a thread of its own.

Not on the request handlers' pool: forty followed logs would exhaust it.
"""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import structlog

from controller.kinds.common.chunk import Chunk

_log = structlog.get_logger("paddock.streams")
_AHEAD = 8  # chunks read ahead of a slow client; then the source waits
_END = None


class Relay:
    """An async iterator over a blocking stream. Iterate it once, then `stop` it. A slow reader slows the source.

    `open_stream` is called on the thread; the iteration raises its errors.
    """

    def __init__(self, open_stream: Callable[[], Iterator[Chunk]]) -> None:
        self._open_stream = open_stream
        self._source: Iterator[Chunk] | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue(_AHEAD)
        self._first: list[Chunk | Exception | None] = []
        self._stopped = threading.Event()
        self._opened = asyncio.Event()
        threading.Thread(target=self._run, name="stream", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while (item := self._first.pop() if self._first else await self._queue.get()) is not _END:
            if isinstance(item, Exception):
                raise item
            yield item

    async def opened(self) -> Iterator[Chunk] | None:
        """Wait until the stream is open and return it; None if it can't be opened."""
        await self._opened.wait()
        return self._source

    async def failure_within(self, seconds: float) -> Exception | None:
        """Return an error that comes first and that soon; any other first item is kept for the reader."""
        try:
            async with asyncio.timeout(seconds):
                head = await self._queue.get()
        except TimeoutError:
            return None
        self._first.append(head)
        return head if isinstance(head, Exception) else None

    def stop(self) -> None:
        """Close the source: at once if it can be closed from here, else at its next item."""
        self._stopped.set()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(_END)
        close = getattr(self._source, "close", None)
        if close is not None and not inspect.isgenerator(self._source):
            threading.Thread(target=close, name="stream-close", daemon=True).start()

    def _run(self) -> None:
        try:
            self._source = self._open_stream()
            self._set_opened()
            if self._stopped.is_set():  # while opening, when `stop` could not close it
                return
            for chunk in self._source:
                if not self._offer(chunk):
                    break
            self._offer(_END)
        except Exception as error:  # any error must reach the reader, or it waits for ever
            if not self._stopped.is_set():
                self._offer(error)
        finally:
            self._set_opened()
            close = getattr(self._source, "close", None)
            if close is not None:
                close()

    def _set_opened(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._opened.set)

    def _offer(self, item: Chunk | Exception | None) -> bool:
        """Queue one item, waiting for a slow reader; return False once stopped."""
        if self._stopped.is_set():
            return False
        try:
            asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result()
        except (RuntimeError, asyncio.CancelledError):  # the loop has ended
            return False
        return not self._stopped.is_set()
