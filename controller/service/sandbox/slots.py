"""So many of one thing at a time, over all boxes and for each: asked for more, it is refused, not queued."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from controller.service.errors import TooManyRequests


class Slots:
    """Thread-safe. `what` is what there may be so many of, `settings` are the names of the two bounds."""

    def __init__(self, what: str, total: int, per_sandbox: int, settings: tuple[str, str]) -> None:
        self._what, self._total, self._per_sandbox, self._settings = what, total, per_sandbox, settings
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many there are now."""
        return self._taken.total()

    def take(self, key: str) -> Callable[[], None]:
        """One more for the box of that key, until what is returned is called. Raises TooManyRequests."""
        with self._lock:
            if self._taken[key] >= self._per_sandbox:
                raise TooManyRequests(self._words(self._per_sandbox, "for this sandbox", self._settings[1]))
            if self._taken.total() >= self._total:
                raise TooManyRequests(self._words(self._total, "for all sandboxes together", self._settings[0]))
            self._taken[key] += 1
        left = [key]

        def give_back() -> None:
            with suppress(IndexError):  # popping is atomic: it is given back once
                self._give_back(left.pop())

        return give_back

    def _give_back(self, key: str) -> None:
        with self._lock:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]

    def _words(self, bound: int, where: str, setting: str) -> str:
        return f"{bound} {self._what} are open {where}, the most there may be ({setting}); try again when one has ended"
