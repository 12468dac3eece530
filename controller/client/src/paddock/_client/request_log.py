"""Log of requests: method, path, status and duration. `logging.getLogger("paddock")`, level DEBUG; `paddock -v`."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("paddock")


class Answered:
    """The response to one request, once there is one."""

    status: int | None = None


@contextmanager
def logged(method: str, target: str) -> Iterator[Answered]:
    """Log one request at its end, which is when its status is known. A streamed body comes later."""
    found, began = Answered(), time.monotonic()
    try:
        yield found
    finally:
        took = (time.monotonic() - began) * 1000
        _log.debug("%s %s %s in %.0f ms", method, target, found.status or "failed", took)
