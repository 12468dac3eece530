"""Keeps one container that the engine does not answer for from holding the threads of all others.

The engine locks each container: while it waits for a command's start, a kill or a stalled client, every other call for
that container waits as well, for as long as the client likes.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controller.engine.docker.errors import Fault

# Longer than any call for a container takes on a loaded engine, except for a start and a removal.
_PATIENCE_SECONDS = 1.0


class Bulkhead:
    """Lets calls for one container through until one of them has waited too long. Thread-safe.

    From then on the others are refused at once, until that one ends: it alone waits. `ticks` counts seconds.
    """

    def __init__(
        self, *, patience_seconds: float = _PATIENCE_SECONDS, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience_seconds, self._ticks = patience_seconds, ticks
        self._lock = threading.Lock()
        self._waiting: dict[str, list[float]] = {}

    @contextmanager
    def entered(self, container_id: str) -> Iterator[None]:
        """Held while a call for this container waits for its answer. Raises Fault ("busy") at once if one hangs."""
        now = self._ticks()
        with self._lock:
            calls = self._waiting.get(container_id, [])
            if calls and now - calls[0] >= self._patience_seconds:
                raise Fault("busy", _words(container_id, now - calls[0]))
            self._waiting.setdefault(container_id, []).append(now)
        try:
            yield
        finally:
            with self._lock:
                self._waiting[container_id].remove(now)
                if not self._waiting[container_id]:
                    del self._waiting[container_id]


def hangs(container_id: str) -> str:
    """The words for a container that the engine does not answer for."""
    return (
        f"container {container_id[:12]}: the engine does not answer for it, though it answers for others; it is"
        " looked at again and again, and used again once the engine answers (see `journalctl -u docker`)"
    )


def _words(container_id: str, seconds: float) -> str:
    return (
        f"container {container_id[:12]}: an earlier call for it has waited {seconds:.1f} s for the engine's answer;"
        " ask again once the engine answers for it"
    )
