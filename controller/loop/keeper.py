"""Keeper of one kind of object beside the passes: its thread takes a step when it is woken, or when one is due."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import structlog

from controller.ports import StoreError


class Keeper(ABC):
    """A thread that takes steps. A failure is logged and the step taken again; a bug stops no later step."""

    name: ClassVar[str]
    """Name of the thread, and of what is kept in the log."""

    log_name: ClassVar[str]
    """Name of the logger."""

    retry_seconds: ClassVar[float] = 1.0
    """Wait after a failure of the store, and while another daemon may act."""

    failed_seconds: ClassVar[float] = 1.0
    """Wait after a step that raised anything else."""

    postponing: ClassVar[tuple[type[Exception], ...]] = (StoreError,)
    """Failures that pass by themselves."""

    def __init__(self, may_act: Callable[[], bool]) -> None:
        self._may_act = may_act
        self._woken, self._stopping = threading.Event(), False
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

    def _run(self) -> None:
        self.prepare()
        log = structlog.get_logger(self.log_name)
        wait: float | None = None
        while True:
            self._woken.wait(wait)
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
