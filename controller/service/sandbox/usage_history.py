"""Usage of all running sandboxes over the last hour, for charts: a sample each half minute, in memory.

E2B's figures (`controller/e2b/control/usage_history.py`) are taken by the same thread, where that protocol is in use.
"""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.kinds.observed.usage import UsageSample
from controller.processes.keeper import Keeper
from controller.service.sandbox.usage import LastSamples

_STEP_SECONDS, _STEPS, _SPAN_SECONDS = 15.0, 2, 3600.0


@dataclass(frozen=True, slots=True)
class PastUsage:
    """Usage at one time. Counters start with the container; None: no limit, no network, not reported."""

    at: float
    """Time of the sample, Unix seconds."""
    cpu_percent: float
    """CPU before it; 100 is one busy core."""
    memory_bytes: float | None
    """Memory without what the kernel can give back."""
    memory_limit_bytes: float | None
    """Its limit of memory."""
    network_receive_bytes: float | None
    """Counter of received bytes."""
    network_transmit_bytes: float | None
    """Counter of sent bytes."""
    disk_read_bytes: float | None
    """Counter of bytes read."""
    disk_write_bytes: float | None
    """Counter of bytes written."""
    processes: float | None
    """Number of processes."""


_FIELDS = len(PastUsage.__slots__)


class UsageHistory(Keeper):
    """Thread-safe. A sandbox's samples are numbers in one array: 72 bytes each."""

    name, log_name, first_seconds, failed_seconds = "usage-history", "paddock.usage", _STEP_SECONDS, _STEP_SECONDS

    def __init__(self, samples: LastSamples, now: Callable[[], float]) -> None:
        self._samples, self._now = samples, now
        self._numbers: dict[str, array[float]] = {}
        self._steps = 0
        self._follower: Callable[[], None] | None = None
        super().__init__()

    def follow(self, sample: Callable[[], None]) -> None:
        """Have this called in each step, twice as often as samples are taken here."""
        self._follower = sample

    def step(self) -> float | None:
        """Take a sample, each second time."""
        self._steps += 1
        if self._steps % _STEPS == 0:
            self.sample()
        if self._follower is not None:
            self._follower()
        return _STEP_SECONDS

    def sample(self) -> None:
        """Take one sample of each running sandbox, and forget what is older than an hour."""
        oldest = self._now() - _SPAN_SECONDS
        samples = self._samples()
        histories: dict[str, array[float]] = {}
        for uid in {*self._numbers, *samples}:
            history = self._numbers.get(uid, array("d"))
            stale = 0
            while stale < len(history) and history[stale] < oldest:
                stale += _FIELDS
            history = array("d", history[stale:])
            if uid in samples and (not history or history[-_FIELDS] < samples[uid].at):
                history.extend(_numbers(samples[uid]))
            if history:
                histories[uid] = history
        self._numbers = histories

    def of(self, uid: str) -> Sequence[PastUsage]:
        """Return the samples of a sandbox, oldest first."""
        numbers = self._numbers.get(uid, array("d"))
        rows = (numbers[start : start + _FIELDS] for start in range(0, len(numbers), _FIELDS))
        return [
            PastUsage(row[0], row[1], *(None if math.isnan(number) else number for number in row[2:])) for row in rows
        ]


def _numbers(sample: UsageSample) -> tuple[float, ...]:
    usage, network = sample.usage, sample.usage.network
    figures = (
        usage.memory_working_set_bytes,
        usage.memory_limit_bytes,
        network.receive_bytes if network else None,
        network.transmit_bytes if network else None,
        usage.fs_read_bytes,
        usage.fs_write_bytes,
        usage.pids,
    )
    return (
        sample.at,
        round(sample.cpu_cores * 100, 2),
        *(math.nan if figure is None else float(figure) for figure in figures),
    )
