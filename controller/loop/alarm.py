"""Says when the loop should look again: at once (somebody called `wake`), or at a time (the plan's next wake)."""

import threading


class Alarm:
    """Wakes coalesce: however many arrive while a turn runs, one more turn follows. `wake` is thread-safe."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        """Look again as soon as possible."""
        self._event.set()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake, `seconds` at most (None: for ever). True when there was one; it is used up by this."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken
