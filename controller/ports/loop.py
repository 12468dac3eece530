"""Ports of the reconcile loop: use of sandboxes, periodic work."""

from typing import Protocol

from controller.kinds.observed.activity import Run
from controller.ports.common import Wake


class InUse(Protocol):
    """Who uses which box now: the doors tell it, each turn heeds it. See loop/activity.py."""

    def begin(self, uid: str, /, *, asks: bool) -> None:
        """A stream begins; `asks` wakes a box that sleeps."""
        ...

    def end(self, uid: str, /, *, asks: bool) -> None:
        """It has ended."""
        ...

    def held(self, uid: str, /) -> Run | None:
        """The run of that object that idleness ends, or ended last: nobody may begin to use it."""
        ...

    @property
    def turns(self) -> int:
        """How many turns have ended."""
        ...

    def wait(self, turns: int, seconds: float, /) -> bool:
        """Wait until more turns than that have ended; False after `seconds`."""
        ...


class Jobs(Protocol):
    """Periodic work that only marks things due."""

    def every(self, job_id: str, seconds: float, jitter_seconds: float, mark: Wake) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
