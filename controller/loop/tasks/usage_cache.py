"""Cache of each running container's usage: read on demand, at most once a second unless another container runs.

What is frozen uses nothing: it is read again after `_FROZEN_SECONDS`, or when it was observed as another.

CPU use needs two readings; the first one of a run counts from its start. While the engine gives no answer, what it is
known to run is read as before.
"""

import threading
from collections.abc import Callable, Mapping

from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import Usage, UsageSample
from controller.kinds.planning.snapshot import Snapshot
from controller.ports import Clock, UsageReader

_LEAST_SECONDS = 1.0
_FROZEN_SECONDS = 120.0


class UsageCache:
    """Reads files, never Docker; thread-safe, one reading at a time."""

    def __init__(self, snapshot: Callable[[], Snapshot | None], usage: UsageReader, clock: Clock) -> None:
        self._snapshot, self._usage, self._clock = snapshot, usage, clock
        self._lock = threading.Lock()
        self._at = 0.0
        self._seen: Snapshot | None = None
        self._asked: frozenset[str] = frozenset()
        self._kept: Mapping[str, UsageSample] = {}

    def now(self) -> Mapping[str, UsageSample]:
        """Return the samples of running containers by uid of their object, at most a second old."""
        with self._lock:
            snapshot, now = self._snapshot(), self._clock.now()
            fresh = self._at <= now < self._at + _LEAST_SECONDS
            if snapshot is None or (fresh and snapshot is self._seen):
                return self._kept
            self._seen, alive = snapshot, snapshot.measurable()
            ids = frozenset(container.id for container in alive)
            if not fresh or not ids <= self._asked:
                resting = {container.id for container in alive if self._is_at_rest(container, now)}
                read = self._usage.read([container for container in alive if container.id not in resting])
                self._kept = {
                    container.uid: (
                        self._kept[container.uid]
                        if container.id in resting
                        else self._sample(container, read[container.id], now)
                    )
                    for container in alive
                    if container.id in read or container.id in resting
                }
                self._at, self._asked = now, ids
            return self._kept

    def _is_at_rest(self, container: Container, now: float) -> bool:
        """Tell whether the last sample of a frozen container still says what a new one would."""
        last = self._kept.get(container.uid)
        return (
            container.state is State.PAUSED
            and last is not None
            and last.container == container
            and last.cpu_cores == 0
            and last.at <= now < last.at + _FROZEN_SECONDS
        )

    def _sample(self, container: Container, usage: Usage, now: float) -> UsageSample:
        last = self._kept.get(container.uid)
        cpu_seconds, since = usage.cpu_usage_seconds, container.started_at or now
        if last is not None and _run(last.container) == _run(container) and last.at < now:
            cpu_seconds, since = cpu_seconds - last.usage.cpu_usage_seconds, last.at
        window = max(now - since, 0.0)
        return UsageSample(container, usage, now, max(0.0, cpu_seconds) / window if window else 0.0, window)


def _run(container: Container) -> tuple[str, float]:
    return container.run
