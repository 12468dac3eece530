"""Between this process's own streams and those of a command in a box."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

from controller.client.exec import PIECE_BYTES, Running


def carry(running: Running, *, with_stdin: bool) -> int:
    """Carry the streams until the command ends; gives its exit code."""
    if with_stdin:
        threading.Thread(target=running.feed, args=(_stdin(),), name="stdin", daemon=True).start()
    streams = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    for each in running:
        stream = streams[each.stream]
        stream.write(each.data)
        stream.flush()
    assert running.exit_code is not None  # the iteration has ended
    return running.exit_code


def _stdin() -> Iterator[bytes]:
    buffer: Any = sys.stdin.buffer  # its type has no read1, which it has
    while data := buffer.read1(PIECE_BYTES):
        yield data
