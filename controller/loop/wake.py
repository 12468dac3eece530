"""Wake-up of the reconcile loop: at once (`wake`), or at a time (the plan's next wake)."""

import threading


class LoopWaker:
    """Wakes coalesce: however many arrive during a pass, one more pass follows. Thread-safe."""

    def __init__(self) -> None:
        self._event, self._urgent = threading.Event(), threading.Event()

    def wake(self) -> None:
        """Request a pass as soon as possible."""
        self._event.set()

    def wake_now(self) -> None:
        """Request a pass at once: a caller waits for its result."""
        self._urgent.set()
        self._event.set()

    def gather(self, seconds: float) -> None:
        """Collect wakes for `seconds`, or until one is urgent, then clear them."""
        self._urgent.wait(seconds)
        self._urgent.clear()
        self._event.clear()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake, at most `seconds` (None: without end), and clear it. Return True if there was one."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken
