"""Usage of all running sandboxes over the last hour, for charts: a sample each half minute, in memory."""

import math
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from controller.kinds.observed.usage import UsageSample
from controller.service.sandbox.usage import LastSamples

_SECONDS, _SPAN_SECONDS = 30.0, 3600.0
_log = structlog.get_logger("paddock.usage")


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


class UsageHistory:
    """Thread-safe. A sandbox's samples are numbers in one array: 72 bytes each."""

    def __init__(self, samples: LastSamples, now: Callable[[], float]) -> None:
        self._samples, self._now = samples, now
        self._numbers: dict[str, array[float]] = {}

    def start(self) -> None:
        """Take samples without end, on a thread."""
        threading.Thread(target=self._run, name="usage-history", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(_SECONDS)
            try:
                self.sample()
            except Exception as error:  # the next one may succeed
                _log.warning("usage not sampled", why=str(error), exc_info=True)

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
