"""Concurrency limits, in total and for each sandbox: requests above them are refused, not queued."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from controller.service.errors import TooManyRequests


class Slots:
    """Thread-safe. `what` names the counted thing in messages, `settings` the two limits."""

    def __init__(self, what: str, total: int, per_sandbox: int, settings: tuple[str, str]) -> None:
        self._what, self._total, self._per_sandbox, self._settings = what, total, per_sandbox, settings
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @property
    def used_count(self) -> int:
        """Return the number of slots in use."""
        return self._taken.total()

    def take(self, key: str) -> Callable[[], None]:
        """Take a slot for a sandbox until the result is called. Raises TooManyRequests."""
        with self._lock:
            if self._taken[key] >= self._per_sandbox:
                raise TooManyRequests(self._message(self._per_sandbox, "for this sandbox", self._settings[1]))
            if self._taken.total() >= self._total:
                raise TooManyRequests(self._message(self._total, "for all sandboxes together", self._settings[0]))
            self._taken[key] += 1
        open_ = [key]

        def release() -> None:
            with suppress(IndexError):  # popping is atomic: it is released only once
                self._release(open_.pop())

        return release

    def _release(self, key: str) -> None:
        with self._lock:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]

    def _message(self, bound: int, where: str, setting: str) -> str:
        return f"{bound} {self._what} are open {where}, which is the limit ({setting}); try again when one has ended"
