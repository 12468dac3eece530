"""Wake-up of the reconcile loop: at once (`wake`), or at a time (the plan's next wake)."""

import threading

_SOON_SECONDS = 0.1


class LoopWaker:
    """Wakes coalesce: however many arrive during a pass, one more pass follows. Thread-safe."""

    def __init__(self) -> None:
        self._event, self._hard, self._urgent = threading.Event(), threading.Event(), threading.Event()

    def wake(self) -> None:
        """Request a pass as soon as possible."""
        self._hard.set()
        self._event.set()

    def wake_now(self) -> None:
        """Request a pass at once: a caller waits for its result."""
        self._urgent.set()
        self.wake()

    def wake_soon(self) -> None:
        """Request a pass within a moment: nobody waits for it, and many may request one."""
        self._event.set()

    def gather(self, seconds: float) -> None:
        """Collect wakes for `seconds` (for longer, if none was for as soon as possible), then clear them.

        An urgent one ends it.
        """
        if self._hard.wait(_SOON_SECONDS):
            self._urgent.wait(seconds)
        self._urgent.clear()
        self._hard.clear()
        self._event.clear()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake, at most `seconds` (None: without end), and clear it. Return True if there was one."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken
