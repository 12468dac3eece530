"""Relay from a blocking stream into the event loop, on a thread of its own.

Not on the request handlers' pool: forty followed logs would exhaust it. A thread whose reader is slow waits by itself:
it costs the event loop nothing.
"""

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

import structlog

from controller.kinds.common.chunk import Chunk
from controller.service.turns import turns

_log = structlog.get_logger("paddock.streams")
_AHEAD, _AHEAD_BYTES = 8, 128 << 10  # read ahead of a slow client; then the source waits
_POLL_SECONDS = 5.0  # how late a waiting thread notices that the event loop has ended
_END = None
_Item = Chunk | Exception | None


class Relay:
    """An async iterator over a blocking stream. Iterate it once, then `stop` it. A slow reader slows the source.

    `open_stream` is called on the thread; the iteration raises its errors.
    """

    def __init__(self, open_stream: Callable[[], Iterator[Chunk]]) -> None:
        self._open_stream = open_stream
        self._source: Iterator[Chunk] | None = None
        self._loop, self._turns = asyncio.get_running_loop(), turns()
        self._changed = threading.Condition()  # guards the items
        self._items: deque[_Item] = deque()
        self._held_bytes = 0
        self._stopped = False
        self._ready, self._opened = asyncio.Event(), asyncio.Event()
        threading.Thread(target=self._run, name="stream", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for chunks in self.batches():
            for chunk in chunks:
                yield chunk

    async def batches(self) -> AsyncIterator[list[Chunk]]:
        """Yield the chunks that are there by now, in order."""
        while True:
            chunks: list[Chunk] = []
            for item in await self._take_items():
                if isinstance(item, Chunk):
                    chunks.append(item)
                    continue
                if chunks:
                    yield chunks
                if item is _END:
                    return
                raise item
            yield chunks

    async def until_open(self) -> Iterator[Chunk] | None:
        """Wait until the stream is open and return it; None if it can't be opened."""
        await self._opened.wait()
        return self._source

    async def failure_within(self, seconds: float) -> Exception | None:
        """Return an error that comes first and that soon; any other first item is kept for the reader."""
        try:
            async with asyncio.timeout(seconds):
                await self._wait_for_items()
        except TimeoutError:
            return None
        with self._changed:
            head = self._items[0] if self._items else _END
        return head if isinstance(head, Exception) else None

    def stop(self) -> None:
        """Close the source: at once if it can be closed from here, else at its next item."""
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._items.append(_END)
            self._changed.notify_all()
        self._ready.set()
        close = getattr(self._source, "close", None)
        if close is not None and not inspect.isgenerator(self._source):
            threading.Thread(target=close, name="stream-close", daemon=True).start()

    async def _take_items(self) -> list[_Item]:
        """Wait for items, and take all that are there."""
        await self._wait_for_items()
        with self._changed:
            items = list(self._items)
            self._items.clear()
            self._held_bytes = 0
            self._changed.notify_all()
        return items

    async def _wait_for_items(self) -> None:
        """Wait until there are items."""
        while True:
            with self._changed:
                if self._items:
                    return
                self._ready.clear()
            await self._ready.wait()

    def _run(self) -> None:
        try:
            self._source = self._open_stream()
            self._turns.add(self._opened.set)
            if self._stopped:  # while opening, when `stop` could not close it
                return
            for chunk in self._source:
                if not self._offer(chunk):
                    break
            self._offer(_END)
        except Exception as error:  # any error must reach the reader, or it waits for ever
            self._offer(error)
        finally:
            self._turns.add(self._opened.set)
            close = getattr(self._source, "close", None)
            if close is not None:
                close()

    def _offer(self, item: _Item) -> bool:
        """Queue one item, waiting for a slow reader; return False once stopped."""
        with self._changed:
            while not self._stopped and (len(self._items) >= _AHEAD or self._held_bytes >= _AHEAD_BYTES):
                self._changed.wait(_POLL_SECONDS)
                if self._loop.is_closed():
                    return False
            if self._stopped:
                return False
            is_first = not self._items
            self._items.append(item)
            self._held_bytes += len(item.data) if isinstance(item, Chunk) else 0
        if is_first:  # else its reader is woken already
            self._turns.add(self._ready.set)
        return True
