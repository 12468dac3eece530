"""Bulkhead: one hanging container never blocks the threads of the others.

The engine locks each container. While it waits for an exec start, a kill or a stalled client, every other call for that
container waits, too.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controller.engine.docker.errors import Fault

# Longer than any call for a container takes on a loaded engine, except for a start and a removal.
_MAX_WAIT_SECONDS = 1.0


class Bulkhead:
    """Limit of the calls that wait for one container. Thread-safe.

    Once a call has waited too long, new calls are refused at once until it ends. `ticks` counts seconds.
    """

    def __init__(
        self, *, max_wait_seconds: float = _MAX_WAIT_SECONDS, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_wait_seconds, self._ticks = max_wait_seconds, ticks
        self._lock = threading.Lock()
        self._waiting: dict[str, list[float]] = {}

    @contextmanager
    def entered(self, container_id: str) -> Iterator[None]:
        """Held during a call for this container. Raises Fault ("busy") at once if an earlier call hangs."""
        now = self._ticks()
        with self._lock:
            calls = self._waiting.get(container_id, [])
            if calls and now - calls[0] >= self._max_wait_seconds:
                raise Fault("busy", _message(container_id, now - calls[0]))
            self._waiting.setdefault(container_id, []).append(now)
        try:
            yield
        finally:
            with self._lock:
                self._waiting[container_id].remove(now)
                if not self._waiting[container_id]:
                    del self._waiting[container_id]


def hanging_message(container_id: str) -> str:
    """Describe a container that the engine does not answer for."""
    return (
        f"container {container_id[:12]}: the engine does not answer for it, though it answers for others; Paddock"
        " retries until it does (see `journalctl -u docker`)"
    )


def _message(container_id: str, seconds: float) -> str:
    return (
        f"container {container_id[:12]}: an earlier call has waited {seconds:.1f} s for the engine's answer;"
        " retry once the engine answers"
    )
