"""A command's collected output: head and tail of each stream, and the number of omitted bytes."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from controller.kinds.common.chunk import Chunk

ENDED_EARLY = "the stream ended before the command; it may still run"
_MARK = b"\n[... %d bytes left out ...]\n"


class Capped:
    """Head and tail of a stream, half of the limit each."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_free = limit_bytes - limit_bytes // 2
        self._tail_bytes = limit_bytes // 2
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._held = 0  # bytes in the tail
        self.omitted_bytes = self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Append data; drop the oldest bytes of the tail."""
        self.total_bytes += len(data)
        first, remaining = data[: self._head_free], data[self._head_free :]
        self._head_free -= len(first)
        if first:
            self._head.append(first)
        if remaining:
            self._tail.append(remaining)
            self._held += len(remaining)
        while self._held > self._tail_bytes:
            self._drop(self._held - self._tail_bytes)

    def _drop(self, surplus: int) -> None:
        oldest = self._tail.popleft()
        newest = oldest[surplus:]
        if newest:
            self._tail.appendleft(newest)
        dropped_bytes = len(oldest) - len(newest)
        self._held -= dropped_bytes
        self.omitted_bytes += dropped_bytes

    def content(self) -> bytes:
        """Return head and tail, with a line between them that counts the omitted bytes."""
        mark = _MARK % self.omitted_bytes if self.omitted_bytes else b""
        return b"".join((*self._head, mark, *self._tail))


@dataclass(frozen=True, slots=True)
class Collected:
    """An ended command and its kept output; `stdout_bytes` and `stderr_bytes` were written in all."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    stdout_omitted_bytes: int
    stderr_omitted_bytes: int
    timed_out: bool
    stdout_bytes: int = 0
    stderr_bytes: int = 0


class Collector:
    """Collects a command's chunks; `result` is set after its `exit`."""

    def __init__(self, limit_bytes: int) -> None:
        self._streams = {"stdout": Capped(limit_bytes), "stderr": Capped(limit_bytes)}
        self._exit_code: int | None = None
        self._timed_out = False

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        if chunk.stream == "exit":
            self._exit_code = int(chunk.data)
        elif chunk.stream == "timeout":
            self._timed_out = True
        elif chunk.stream in self._streams:
            self._streams[chunk.stream].add(chunk.data)

    def collect(self, chunks: Iterable[Chunk]) -> Collected | None:
        """Add all chunks; return the result, None if they ended before the command."""
        for chunk in chunks:
            self.add(chunk)
        return self.result

    @property
    def result(self) -> Collected | None:
        """Return None while the command runs."""
        if self._exit_code is None:
            return None
        out, err = self._streams["stdout"], self._streams["stderr"]
        return Collected(
            exit_code=self._exit_code,
            stdout=out.content(),
            stderr=err.content(),
            stdout_omitted_bytes=out.omitted_bytes,
            stderr_omitted_bytes=err.omitted_bytes,
            timed_out=self._timed_out,
            stdout_bytes=out.total_bytes,
            stderr_bytes=err.total_bytes,
        )
