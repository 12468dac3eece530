"""Lines of a log that comes in pieces."""

from collections import deque
from collections.abc import Iterable, Iterator

from controller.kinds.common.chunk import Chunk


def last_lines(chunks: Iterable[Chunk], count: int) -> Iterator[Chunk]:
    """Yield the chunks of the last `count` lines, of which the last may have no end. Holds only these in memory."""
    kept, ended = deque[Chunk](), 0  # no chunk goes beyond a line's end
    for chunk in chunks if count else ():
        parts = chunk.data.split(b"\n")
        lines = [Chunk(chunk.stream, part + b"\n") for part in parts[:-1]]
        if len(lines) > count:
            kept.clear()
            ended, lines = 0, lines[-count:]
        kept.extend(lines)
        ended += len(lines)
        if parts[-1]:
            kept.append(Chunk(chunk.stream, parts[-1]))
        ended -= _drop(kept, ended - count)
    if kept and not _ends_line(kept[-1]):
        _drop(kept, ended + 1 - count)
    yield from kept


def _drop(kept: deque[Chunk], lines: int) -> int:
    """Remove so many lines from the front; return their number."""
    for _ in range(lines):
        while not _ends_line(kept.popleft()):
            pass
    return max(0, lines)


def _ends_line(chunk: Chunk) -> bool:
    return chunk.data.endswith(b"\n")
