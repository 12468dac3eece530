"""Copies between descriptors within the kernel (splice), where one is a pipe and the system supports it."""

import errno
import os

_PIECE_BYTES = 1 << 18


def move(source: int, target: int, count: int) -> int:
    """Wait for bytes, and move at most `count`; 0 at the end. Raises OSError."""
    try:
        return os.splice(source, target, count)
    except OSError as error:
        if error.errno != errno.EINVAL:  # not supported by this file system
            raise
    data = os.read(source, min(count, _PIECE_BYTES))
    write_all(target, data)
    return len(data)


def write_all(target: int, data: bytes) -> None:
    """Write all data. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
