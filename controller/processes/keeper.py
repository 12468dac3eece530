"""Keeper: a thread of the daemon that takes a step when it is woken, or when one is due, until it is stopped.

What works beside the reconcile passes and the requests is one of these, unless its module says why not.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import structlog


class Keeper(ABC):
    """A thread that takes steps. A failure is logged and the step taken again; a bug stops no later step."""

    name: str
    """Name of the thread, and of what is kept in the log."""

    log_name: str
    """Name of the logger."""

    first_seconds: float | None = None
    """Wait before the first step; None: until it is woken."""

    retry_seconds: float = 1.0
    """Wait after a failure that passes by itself, and while another daemon may act."""

    failed_seconds: float = 1.0
    """Wait after a step that raised anything else."""

    postponing: tuple[type[Exception], ...] = ()
    """Failures that pass by themselves."""

    def __init__(self, may_act: Callable[[], bool] = lambda: True) -> None:
        self._may_act = may_act
        self._woken, self._stopping = threading.Event(), False
        self.was_woken = False  # for the present step; else it was due
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @abstractmethod
    def step(self) -> float | None:
        """Do what is due; return the seconds until the next step (None: when woken). Raises what `postponing` names."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Do what comes before the first step, on the thread: by default nothing."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further step, and wait for the one under way."""
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Take a step soon."""
        self._woken.set()

    @property
    def stopping(self) -> bool:
        """True once it is to end."""
        return self._stopping

    def _run(self) -> None:
        self.prepare()
        log = structlog.get_logger(self.log_name)
        wait = self.first_seconds
        while True:
            self.was_woken = self._woken.wait(wait)
            self._woken.clear()
            if self._stopping:
                return
            try:
                wait = self.step() if self._may_act() else self.retry_seconds
            except self.postponing as error:
                log.warning("step postponed", keeper=self.name, reason=str(error))
                wait = self.retry_seconds
            except Exception:
                log.exception("step raised", keeper=self.name)
                wait = self.failed_seconds


class Periodic(Keeper):
    """Keeper that calls a function again and again, so many seconds after its last call."""

    def __init__(
        self,
        name: str,
        log_name: str,
        seconds: float,
        call: Callable[[], object],
        *,
        postponing: tuple[type[Exception], ...] = (),
    ) -> None:
        self.name, self.log_name, self._call, self.postponing = name, log_name, call, postponing
        self.first_seconds = self.retry_seconds = self.failed_seconds = self._seconds = seconds
        super().__init__()

    def step(self) -> float | None:
        """Call it."""
        self._call()
        return self._seconds
