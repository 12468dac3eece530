"""CPU samples of sandboxes that may be idle, for the next pass: one cgroup file each, when the planner asks."""

from collections.abc import Sequence

import structlog

from controller.kinds.observed.activity import CpuSample
from controller.kinds.planning.plan import Sample
from controller.loop.activity import ActivityLog
from controller.ports import Clock, CpuReader

_log = structlog.get_logger("paddock.loop")
_AT_ONCE = 100  # the planner asks again for the rest: a pass stays short


def sample(samples: Sequence[Sample], cpu: CpuReader | None, clock: Clock, activity: ActivityLog) -> None:
    """Take the samples. One that can't be read is recorded as unknown, which counts as use."""
    some = samples[:_AT_ONCE]
    seconds_by_id = cpu.cpu_seconds([request.container for request in some]) if cpu is not None and some else {}
    for request in some:
        seconds = seconds_by_id.get(request.container.id)
        if seconds is None:
            _log.info("CPU time unreadable; sandbox counts as used", container=request.container.name)
        run = request.container.run
        activity.record_sample(request.uid, CpuSample(run, clock.now(), seconds), request.since)
