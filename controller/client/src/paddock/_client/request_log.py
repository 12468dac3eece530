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
    answered, started_at = Answered(), time.monotonic()
    try:
        yield answered
    finally:
        took = (time.monotonic() - started_at) * 1000
        _log.debug("%s %s %s in %.0f ms", method, target, answered.status or "failed", took)
