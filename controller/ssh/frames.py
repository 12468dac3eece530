"""Frames of a command's output, from the daemon to the SSH process: a kind, a length, then the data."""

import struct
from collections.abc import Iterator

HEAD = struct.Struct(">BI")
STDOUT, STDERR, EXIT, FAILED = range(4)
MOST_BYTES = 1 << 22


class Malformed(Exception):
    """A frame of no known kind or of no possible length."""


class Reader:
    """Parser of frames, in pieces as they arrive."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that are complete by now. Raises Malformed."""
        data = self._data + data if self._data else data
        at = 0
        while len(data) - at >= HEAD.size:
            kind, size = HEAD.unpack_from(data, at)
            if kind > FAILED or size > MOST_BYTES:
                raise Malformed(f"a frame of kind {kind} with {size} bytes")
            end = at + HEAD.size + size
            if end > len(data):
                break
            yield kind, data[at + HEAD.size : end]
            at = end
        self._data = data[at:]
