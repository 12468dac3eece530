"""Schedule of background jobs, by APScheduler. Jobs only mark work as due.

The library ignores errors in jobs and drops late runs by default: reconciling must never depend on it.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.pool import BasePoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from controller.ports import Meter, Wake

_COUNTERS = {
    EVENT_JOB_EXECUTED: ("paddock_scheduler_job_runs_total",),
    EVENT_JOB_ERROR: ("paddock_scheduler_job_runs_total", "paddock_scheduler_job_failures_total"),
    EVENT_JOB_MISSED: ("paddock_scheduler_job_missed_total",),
    EVENT_JOB_MAX_INSTANCES: ("paddock_scheduler_job_overlaps_total",),
}

_ALL = EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES


class _Executor(BasePoolExecutor):  # type: ignore[misc] # without types
    """Runs jobs on a thread pool that its owner shuts down."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__(pool)


class Schedule:
    """ports.Jobs over APScheduler 3, kept in memory: every start begins a new schedule."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._pool = meter, ThreadPoolExecutor(1, thread_name_prefix="schedule")
        self._scheduler = BackgroundScheduler(
            executors={"default": _Executor(self._pool)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        self._scheduler.add_listener(self._count, _ALL)

    def every(self, job_id: str, seconds: float, jitter_seconds: float, mark: Wake) -> None:
        """Call `mark` about every `seconds`, give or take `jitter_seconds`, so that nothing runs in step."""
        self._scheduler.add_job(
            self._run_timed,
            "interval",
            args=(job_id, mark),
            seconds=seconds,
            jitter=int(jitter_seconds) or None,
            id=job_id,
            replace_existing=True,
        )
        self._meter.gauge("paddock_scheduler_job_interval_seconds", seconds, job_id=job_id)

    def reset(self) -> None:
        """Make every job due now: after a clock jump the planned times are void."""
        for job in self._scheduler.get_jobs():
            job.modify(next_run_time=datetime.now(UTC))

    def start(self) -> None:
        self._scheduler.start()
        for job in self._scheduler.get_jobs():
            self._publish_next(job.id)
        self._meter.gauge("paddock_scheduler_running", 1)

    def stop(self) -> None:
        if self._scheduler.running:
            # With wait=True it waits holding its locks, which a job that is ending needs, too.
            self._scheduler.shutdown(wait=False)
        self._pool.shutdown(wait=True)
        self._meter.gauge("paddock_scheduler_running", 0)

    def _run_timed(self, job_id: str, mark: Wake) -> None:
        started_at = time.perf_counter()
        try:
            mark()
        finally:
            self._meter.observe(
                "paddock_scheduler_job_duration_seconds", time.perf_counter() - started_at, job_id=job_id
            )
        self._meter.gauge("paddock_scheduler_job_last_success_timestamp_seconds", time.time(), job_id=job_id)

    def _count(self, event: JobEvent) -> None:
        for name in _COUNTERS.get(event.code, ()):
            self._meter.count(name, job_id=event.job_id)
        self._publish_next(event.job_id)

    def _publish_next(self, job_id: str) -> None:
        job = self._scheduler.get_job(job_id)
        if job is not None and job.next_run_time is not None:
            at = job.next_run_time.timestamp()
            self._meter.gauge("paddock_scheduler_job_next_run_timestamp_seconds", at, job_id=job_id)
