"""Detection of clock jumps: the wall clock was set, or the host slept.

A duration goes on across a jump: a sandbox that was used a minute ago has not been idle for an hour, nor for no time.
So the times that idleness is counted from move with the clock. Deadlines are dates, and stay as they are.
"""

import threading
import time
from collections.abc import Callable

import structlog

from controller.ports import Clock

_log = structlog.get_logger("paddock.loop")
# Time servers slew smaller differences, and none of our timers is short enough to be affected by one.
_JUMP_SECONDS = 30.0


class ClockJump:
    """Compares `clock` with `ticks` (monotonic seconds); `tell` is called at each jump. Thread-safe."""

    def __init__(
        self, clock: Clock, *, tell: Callable[[], None] = lambda: None, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._ticks, self._report = clock, ticks, tell
        self._lock = threading.Lock()
        self._apart = clock.now() - ticks()

    def jumped(self) -> float:
        """Return the seconds by which the clock has jumped since the last call; 0: it has not."""
        with self._lock:
            apart = self._clock.now() - self._ticks()
            by, self._apart = apart - self._apart, apart
        if abs(by) < _JUMP_SECONDS:
            return 0.0
        _log.warning("clock jump: idle timers moved with it", seconds=round(by))
        self._report()
        return by
