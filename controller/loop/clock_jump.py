"""Notices that the wall clock was set, or that the host slept: it moved on, and time itself did not.

What was measured by the wall clock up to then says nothing: a box that was used a minute ago has not been idle for an
hour. Deadlines are dates, and stay what they are.
"""

import threading
import time
from collections.abc import Callable

import structlog

from controller.ports import Clock

_log = structlog.get_logger("paddock.loop")
# Time servers slew what is less; and no timer of ours is so short that it would matter.
_LEAP_SECONDS = 30.0


class Leap:
    """Compares `clock` with `ticks` (monotonic seconds); `tell` is called at each leap. Thread-safe."""

    def __init__(
        self, clock: Clock, *, tell: Callable[[], None] = lambda: None, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._ticks, self._tell = clock, ticks, tell
        self._lock = threading.Lock()
        self._apart = clock.now() - ticks()

    def noticed(self) -> bool:
        """Whether the clock has leapt since the last call."""
        with self._lock:
            apart = self._clock.now() - self._ticks()
            by, self._apart = apart - self._apart, apart
        if abs(by) < _LEAP_SECONDS:
            return False
        _log.warning("the clock was set, or the host slept: every box counts as used now", seconds=round(by))
        self._tell()
        return True
