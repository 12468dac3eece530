"""Queue of chunks, bounded in bytes, between a stream's thread and its reader."""

import threading
from collections import deque

from controller.kinds.common.chunk import Chunk
from controller.ports import StreamError

_QUEUE_BYTES = 1 << 20


class ByteQueue:
    """Queue of chunks between two threads, of at most `limit_bytes`."""

    def __init__(self, limit_bytes: int = _QUEUE_BYTES) -> None:
        self._limit = limit_bytes
        self._changed = threading.Condition()
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._ended = False
        self._error: StreamError | None = None

    @property
    def full(self) -> bool:
        return self._bytes >= self._limit

    @property
    def has_ended(self) -> bool:
        return self._ended

    def put(self, chunk: Chunk, max_wait_seconds: float | None) -> bool:
        """Wait for space and add. False if the queue stayed full too long, or its reader has gone."""
        with self._changed:
            self._changed.wait_for(lambda: not self.full or self._ended, max_wait_seconds)
            if self.full or self._ended:
                return False
            self._chunks.append(chunk)
            self._bytes += len(chunk.data)
            self._changed.notify_all()
            return True

    def end(self, *last: Chunk, error: StreamError | None = None) -> None:
        """End the stream; queued chunks can still be read. Only the first end counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._chunks.extend(last)
            self._changed.notify_all()

    def clear(self) -> None:
        """Discard everything: the reader has gone."""
        with self._changed:
            self._chunks.clear()
            self._bytes, self._ended, self._error = 0, True, None
            self._changed.notify_all()

    def get(self) -> Chunk:
        """Return the next chunk. Raises StopIteration at the end, StreamError after an error."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._ended)
            if self._chunks:
                chunk = self._chunks.popleft()
                self._bytes -= len(chunk.data)
                self._changed.notify_all()
                return chunk
            if self._error is not None:
                raise self._error
            raise StopIteration
