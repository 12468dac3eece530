"""Usage of this protocol's sandboxes over the last hour: a sample a quarter of a minute, of those that run."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.e2b.metadata import LABEL
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.sandbox.usage import SandboxUsage, Usages

_SECONDS, _SPAN_SECONDS = 15.0, 3600.0
_MOST = round(_SPAN_SECONDS / _SECONDS)


@dataclass(frozen=True, slots=True)
class Reading:
    """Usage at one time (Unix seconds). Sizes are bytes."""

    at: float
    cpu_percent: float
    memory: int
    memory_limit: int
    cache: int
    disk: int
    disk_size: int

    def is_between(self, since: float, until: float) -> bool:
        """Return True if it was taken between these times, which clients send in whole seconds."""
        return since <= self.at and int(self.at) <= until


class UsageHistory:
    """Thread-safe. `sample` is called by the daemon's history of usage."""

    def __init__(self, usages: Usages, now: Callable[[], float]) -> None:
        self._usages, self._now = usages, now
        self._readings: dict[str, deque[Reading]] = {}

    def sample(self) -> None:
        """Take one sample of each sandbox, and forget what is older than an hour."""
        listed = self._usages.of_all(SANDBOX, None, max_age_seconds=_SECONDS / 2)
        oldest = self._now() - _SPAN_SECONDS
        for usage in listed.usages:
            if LABEL in usage.obj.labels:
                self._readings.setdefault(usage.obj.uid, deque(maxlen=_MOST)).append(self.reading(usage))
        for uid, readings in list(self._readings.items()):
            while readings and readings[0].at < oldest:
                readings.popleft()
            if not readings:
                self._readings.pop(uid, None)

    def reading(self, usage: SandboxUsage) -> Reading:
        """Return the reading of a sample."""
        counters, disk = usage.sample.usage, self._usages.disk(usage.sample.container)
        return Reading(
            at=usage.sample.at,
            cpu_percent=round(usage.sample.cpu_cores * 100, 2),
            memory=counters.memory_working_set_bytes or 0,
            memory_limit=counters.memory_limit_bytes or 0,
            cache=counters.memory_cache_bytes or 0,
            disk=disk.used_bytes,
            disk_size=disk.size_bytes,
        )

    def of(self, uid: str, since: float, until: float) -> Sequence[Reading]:
        """Return the readings of a sandbox between two times, oldest first."""
        return [reading for reading in tuple(self._readings.get(uid, ())) if reading.is_between(since, until)]
