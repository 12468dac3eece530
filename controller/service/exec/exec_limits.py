"""Limits of commands in sandboxes: time, concurrency and collected output."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.ports import StreamError
from controller.service import errors

PAUSE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ExecRules:
    """The host's settings for commands. `timeout_seconds` applies if neither request nor template gives one.

    `most_seconds` bounds every command. 0: no limit. One caller may have this `share` of the total. A client may pause
    for `pause_seconds` in reading a command's output.
    """

    timeout_seconds: float = 300.0
    per_sandbox: int = 32
    output_bytes: int = 1 << 20
    most_seconds: float = 0.0
    share: float = 1.0
    pause_seconds: float = PAUSE_SECONDS


@dataclass(slots=True)
class ExecSlots:
    """Counts the running commands of each sandbox."""

    most: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _taken: dict[str, int] = field(default_factory=dict)

    def check(self, uid: str, subject: str) -> None:
        """Raise TooManyRequests if no slot is free."""
        if (used_count := self._taken.get(uid, 0)) >= self.most:
            raise errors.TooManyRequests(
                f"{subject} runs {used_count} commands, and the limit is {self.most}; wait until one ends, "
                "or raise exec_per_sandbox in the daemon's settings"
            )

    def take(self, uid: str, subject: str) -> Callable[[], None]:
        """Take a slot; return its release. Raises StreamError if the last one was taken since `check`."""
        with self._lock:
            try:
                self.check(uid, subject)
            except errors.TooManyRequests as error:
                raise StreamError(str(error)) from error
            return self._count(uid)

    def hold(self, uid: str) -> Callable[[], None]:
        """Take a slot for a command that runs already, above the limit too; return its release."""
        with self._lock:
            return self._count(uid)

    def _count(self, uid: str) -> Callable[[], None]:
        self._taken[uid] = self._taken.get(uid, 0) + 1
        return lambda: self._release(uid)

    def _release(self, uid: str) -> None:
        with self._lock:
            count = self._taken[uid] - 1
            if count:
                self._taken[uid] = count
            else:
                del self._taken[uid]
