"""Clocks of the machine: its wall clock, and the one since its boot."""

import time


class SystemClock:
    """ports.Clock over the machine's wall clock."""

    def now(self) -> float:
        return time.time()


def boot_seconds() -> float:
    """Return CLOCK_BOOTTIME: it is never set, and continues during sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
