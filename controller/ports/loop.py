"""Ports of the reconcile loop: use of sandboxes, periodic work."""

from typing import Protocol

from controller.kinds.runtime.run import Run
from controller.ports.common import Wake


class UseTracker(Protocol):
    """Tracks the use of sandboxes. Streams report to it; each reconcile pass reads it. See loop/activity.py."""

    def begin(self, uid: str, /, *, wakes: bool) -> None:
        """Note the begin of a stream; `wakes` starts a suspended sandbox."""
        ...

    def end(self, uid: str, /, *, wakes: bool) -> None:
        """Note the end of a stream."""
        ...

    def contexts(self, uid: str, run: Run, contexts: tuple[tuple[str, str], ...], /) -> None:
        """Note the code contexts of a run, by name and language."""
        ...

    def stopping_run(self, uid: str, /) -> Run | None:
        """Return the run of that object that idleness ends, or ended last: no new use may begin."""
        ...

    @property
    def passes(self) -> int:
        """Return the number of finished reconcile passes."""
        ...

    def wait(self, passes: int, seconds: float, uid: str = "", /) -> bool:
        """Wait until more passes than that have finished, the last of them with news of that object.

        Returns False after `seconds`. An object that waits to be woken, as others do, is no news: the many who wait
        with it would each read it from the store after each pass.
        """
        ...


class Jobs(Protocol):
    """Periodic work that only marks things due."""

    def every(self, job_id: str, seconds: float, jitter_seconds: float, mark: Wake) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
