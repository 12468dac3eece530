"""Says when the loop should look again: at once (somebody called `wake`), or at a time (the plan's next wake)."""

import threading


class Alarm:
    """Wakes coalesce: however many arrive while a turn runs, one more turn follows. They are thread-safe."""

    def __init__(self) -> None:
        self._event, self._urgent = threading.Event(), threading.Event()

    def wake(self) -> None:
        """Look again as soon as possible."""
        self._event.set()

    def hurry(self) -> None:
        """Look again at once: somebody waits for what comes of it."""
        self._urgent.set()
        self._event.set()

    def gather(self, seconds: float) -> None:
        """Let wakes come together for so long, or until one is urgent. They are used up by this."""
        self._urgent.wait(seconds)
        self._urgent.clear()
        self._event.clear()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake, `seconds` at most (None: for ever). True when there was one; it is used up by this."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken
