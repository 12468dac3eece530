"""Usage from the files where they can be read, and from the engine's own figures where not.

Nobody who reads ever waits for the engine: a background thread asks it for those that the last reading missed, eight at
a time, and the next reading has the answers. While the files can be read, it does nothing.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from controller.engine.docker.errors import Fault
from controller.engine.usage.engine_stats import usage_from_stats
from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import Usage
from controller.ports import UsageReader

_THREADS = 8
# Older answers are no figures of now any more.
_KEPT_SECONDS = 90.0
_PAUSE_SECONDS = 5.0
_Key = tuple[str, float]
Ask = Callable[[str], Mapping[str, Any]]


class FallbackUsage:
    """ports.UsageReader over another one. `ask` gives the engine's answer for a container id; it may raise Fault."""

    def __init__(
        self,
        files: UsageReader,
        ask: Ask,
        *,
        ticks: Callable[[], float] = time.monotonic,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._files, self._ask, self._ticks, self._pause_seconds = files, ask, ticks, pause_seconds
        self._lock = threading.Lock()
        self._kept: dict[_Key, tuple[float, Usage]] = {}
        self._missed: tuple[Container, ...] = ()
        self._due, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        """Usage by container id, at once. One that only the engine can tell of is there from the next reading on."""
        asked = list(containers)
        found = dict(self._files.read(asked))
        missed = tuple(each for each in asked if each.id not in found)
        if missed:
            now = self._ticks()
            with self._lock:
                kept = {each.id: self._kept[_key(each)] for each in missed if _key(each) in self._kept}
            found |= {id_: usage for id_, (at, usage) in kept.items() if now - at < _KEPT_SECONDS}
            self._request(missed)
        return found

    def close(self) -> None:
        """Ask no further. The inner reader is the caller's to close."""
        self._closing.set()
        self._due.set()
        if self._thread is not None:
            self._thread.join()

    def _request(self, missed: tuple[Container, ...]) -> None:
        with self._lock:
            self._missed = missed
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="stats", daemon=True)
                self._thread.start()
        self._due.set()

    def _run(self) -> None:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="stats") as pool:
            while not self._closing.is_set():
                self._due.wait()
                self._due.clear()
                with self._lock:
                    wanted = self._missed
                answers = {} if self._closing.is_set() else dict(pool.map(self._sample, wanted))
                with self._lock:
                    known = {key: each for key, each in self._kept.items() if key in answers}
                    self._kept = {**known, **{key: each for key, each in answers.items() if each is not None}}
                self._closing.wait(self._pause_seconds)

    def _sample(self, container: Container) -> tuple[_Key, tuple[float, Usage] | None]:
        if self._closing.is_set():
            return _key(container), None
        try:
            usage = usage_from_stats(self._ask(container.id), container)
        except (Fault, KeyError, TypeError, ValueError):  # gone, or not told: it is left out, and counted as unread
            usage = None
        return _key(container), None if usage is None else (self._ticks(), usage)


def _key(container: Container) -> _Key:
    return container.id, container.started_at
