"""Wake-up of the reconcile loop: at once (`wake`), or at a time (the plan's next wake)."""

import threading
import time
from collections.abc import Callable

_SOON_SECONDS = 0.1
# While writes come faster than passes, a pass for each costs twice as much processor as one for some of them.
_CROWD_SECONDS, _SPACING_SECONDS = 0.25, 0.03


class LoopWaker:
    """Wakes coalesce: however many arrive during a pass, one more pass follows. Thread-safe."""

    def __init__(
        self, *, ticks: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """`ticks` counts seconds, `pause` waits for some."""
        self._event, self._hard, self._urgent = threading.Event(), threading.Event(), threading.Event()
        self._ticks, self._pause = ticks, pause
        self._writes: list[None] = []  # since the last pass began
        self._pass_at = self._crowded_until = -_CROWD_SECONDS

    def wake(self) -> None:
        """Request a pass as soon as possible."""
        self._hard.set()
        self._event.set()

    def wake_now(self) -> None:
        """Request a pass at once: a caller waits for its result."""
        self._urgent.set()
        self.wake()

    def wake_for_write(self) -> None:
        """Request a pass at once for a write of a caller; while several come between two passes, with theirs."""
        self._writes.append(None)
        self.wake_now()

    def wake_soon(self) -> None:
        """Request a pass within a moment: nobody waits for it, and many may request one."""
        self._event.set()

    def gather(self, seconds: float) -> None:
        """Collect wakes for `seconds` (for longer, if none was for as soon as possible), then clear them.

        An urgent one ends it.
        """
        if self._hard.wait(_SOON_SECONDS):
            self._urgent.wait(seconds)
        now = self._ticks()
        if len(self._writes) > 1:
            self._crowded_until = now + _CROWD_SECONDS
        if now < self._crowded_until and (early_seconds := self._pass_at + _SPACING_SECONDS - now) > 0:
            self._pause(early_seconds)
        self._urgent.clear()
        self._hard.clear()
        self._event.clear()
        if len(self._writes) > 1:
            self._crowded_until = self._ticks() + _CROWD_SECONDS
        self._writes.clear()
        self._pass_at = self._ticks()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake, at most `seconds` (None: without end), and clear it. Return True if there was one."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken
