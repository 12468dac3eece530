"""Lines of a log that comes in pieces."""

from collections import deque
from collections.abc import Iterable, Iterator

from controller.kinds.common.chunk import Chunk


def last_lines(chunks: Iterable[Chunk], count: int) -> Iterator[Chunk]:
    """Yield the chunks of the last `count` lines, of which the last may have no end. Holds only these in memory."""
    tail, line_count = deque[Chunk](), 0  # no chunk goes beyond a line's end
    for chunk in chunks if count else ():
        parts = chunk.data.split(b"\n")
        lines = [Chunk(chunk.stream, line + b"\n") for line in parts[:-1]]
        if len(lines) > count:
            tail.clear()
            line_count, lines = 0, lines[-count:]
        tail.extend(lines)
        line_count += len(lines)
        if parts[-1]:
            tail.append(Chunk(chunk.stream, parts[-1]))
        line_count -= _drop(tail, line_count - count)
    if tail and not _ends_line(tail[-1]):
        _drop(tail, line_count + 1 - count)
    yield from tail


def _drop(tail: deque[Chunk], lines: int) -> int:
    """Remove so many lines from the front; return their number."""
    for _ in range(lines):
        while not _ends_line(tail.popleft()):
            pass
    return max(0, lines)


def _ends_line(chunk: Chunk) -> bool:
    return chunk.data.endswith(b"\n")
