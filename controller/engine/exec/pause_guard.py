"""Mutual exclusion of a pause and an exec start in one container: together they hang the engine (see stuck_exec.py)."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_WAIT_SECONDS = 10.0


class PauseGuard:
    """Exec starts wait for a running pause, a pause waits for exec starts; both for a bounded time. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commands, self._pauses = Counter[str](), Counter[str]()

    @contextmanager
    def command(self, container_id: str) -> Iterator[None]:
        """Held while a command in that container is started."""
        with self._count(self._commands, container_id, unless=self._pauses):
            yield

    @contextmanager
    def pause(self, container_id: str) -> Iterator[None]:
        """Held while that container is paused. No new command starts meanwhile."""
        with self._count(self._pauses, container_id, unless=Counter()):
            with self._changed:
                self._changed.wait_for(lambda: not self._commands[container_id], _WAIT_SECONDS)
            yield

    @contextmanager
    def _count(self, counter: Counter[str], container_id: str, *, unless: Counter[str]) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not unless[container_id], _WAIT_SECONDS)
            counter[container_id] += 1
        try:
            yield
        finally:
            with self._changed:
                counter[container_id] -= 1
                if not counter[container_id]:
                    del counter[container_id]
                self._changed.notify_all()
