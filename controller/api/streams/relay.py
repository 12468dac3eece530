"""Carries what a blocking stream gives into the event loop, on a thread of its own.

Not in the pool of the request handlers: forty logs that are followed would leave no thread for anybody else.
"""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import structlog

from controller.kinds.common.chunk import Chunk

_log = structlog.get_logger("paddock.api")
_AHEAD = 8  # chunks read ahead of a slow client; then the source waits
_END = None


class Pump:
    """Iterate it once, then `stop` it. A slow reader slows the source; `stop` ends both.

    `open_stream` is called on the thread; what it raises comes out of the iteration.
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
        """The stream, as soon as it is open; None if it can't be opened."""
        await self._opened.wait()
        return self._source

    async def failure_within(self, seconds: float) -> Exception | None:
        """The error that the source begins with, if it comes that soon; any other beginning is kept for the reader."""
        try:
            head = await asyncio.wait_for(self._queue.get(), seconds)
        except TimeoutError:
            return None
        self._first.append(head)
        return head if isinstance(head, Exception) else None

    def stop(self) -> None:
        """Let go of the source: at once where it can be closed from here, else at its next item."""
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
            self._tell_opened()
            if self._stopped.is_set():  # while it was opened: `stop` could not close it
                return
            for chunk in self._source:
                if not self._offer(chunk):
                    break
            self._offer(_END)
        except Exception as error:  # whatever it is, the reader must hear of it, or it waits for ever
            if not self._stopped.is_set():
                self._offer(error)
        finally:
            self._tell_opened()
            close = getattr(self._source, "close", None)
            if close is not None:
                close()

    def _tell_opened(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._opened.set)

    def _offer(self, item: Chunk | Exception | None) -> bool:
        """Hand over one item, waiting while the reader is behind; False once nobody reads."""
        if self._stopped.is_set():
            return False
        try:
            asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result()
        except (RuntimeError, asyncio.CancelledError):  # the loop has ended
            return False
        return not self._stopped.is_set()
