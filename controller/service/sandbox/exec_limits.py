"""What commands in boxes may take: how long, how many at a time, how much of their output is gathered."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.ports import StreamError
from controller.service import errors


@dataclass(frozen=True, slots=True)
class ExecRules:
    """The host's settings for commands. `timeout_seconds` holds where neither request nor template names one.

    `most_seconds` is the longest that any may run. 0: no limit. One caller may have `share` of what all may have.
    """

    timeout_seconds: float = 300.0
    per_sandbox: int = 32
    output_bytes: int = 1 << 20
    most_seconds: float = 0.0
    share: float = 1.0


@dataclass(slots=True)
class Places:
    """Counts the commands that run in each box."""

    most: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _taken: dict[str, int] = field(default_factory=dict)

    def check(self, uid: str, word: str) -> None:
        """Raises TooManyRequests where no place is free."""
        if (taken := self._taken.get(uid, 0)) >= self.most:
            raise errors.TooManyRequests(
                f"{word} runs {taken} commands already, and {self.most} are the most at a time; wait until one ends, "
                "or raise exec_per_sandbox in the daemon's settings"
            )

    def take(self, uid: str, word: str) -> Callable[[], None]:
        """Take a place; gives how to leave it. Raises StreamError where somebody was faster since `check`."""
        with self._lock:
            try:
                self.check(uid, word)
            except errors.TooManyRequests as error:
                raise StreamError(str(error)) from error
            return self._enter(uid)

    def hold(self, uid: str) -> Callable[[], None]:
        """Take a place for a command that runs already, free or not; gives how to leave it."""
        with self._lock:
            return self._enter(uid)

    def _enter(self, uid: str) -> Callable[[], None]:
        self._taken[uid] = self._taken.get(uid, 0) + 1
        return lambda: self._leave(uid)

    def _leave(self, uid: str) -> None:
        with self._lock:
            left = self._taken[uid] - 1
            if left:
                self._taken[uid] = left
            else:
                del self._taken[uid]
