"""Bytes from one descriptor to another within the kernel, where one of them is a pipe and the system can do that."""

import errno
import os

_PIECE_BYTES = 1 << 18


def move(source: int, target: int, count: int) -> int:
    """Wait for bytes, and move up to so many; 0 at the end. Raises OSError."""
    try:
        return os.splice(source, target, count)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system can't
            raise
    data = os.read(source, min(count, _PIECE_BYTES))
    write_all(target, data)
    return len(data)


def write_all(target: int, data: bytes) -> None:
    """Write it to its end. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
