"""Periodic work by APScheduler. Its jobs only mark things due: the library goes on after any error in a job, drops
late runs by default, and must never be what a reconciliation depends on."""

from datetime import UTC, datetime

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from controller.ports import Meter, Wake

_COUNTERS = {
    EVENT_JOB_EXECUTED: ("paddock_scheduler_job_runs_total",),
    EVENT_JOB_ERROR: ("paddock_scheduler_job_runs_total", "paddock_scheduler_job_failures_total"),
    EVENT_JOB_MISSED: ("paddock_scheduler_job_missed_total",),
}


class Schedule:
    """ports.Jobs over APScheduler 3, kept in memory: what is due is found out anew at every start."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        self._scheduler.add_listener(self._count, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED)

    def every(self, job_id: str, seconds: float, jitter_seconds: float, mark: Wake) -> None:
        """Call `mark` about every `seconds`, give or take `jitter_seconds`, so that nothing runs in step."""
        self._scheduler.add_job(
            mark, "interval", seconds=seconds, jitter=int(jitter_seconds) or None, id=job_id, replace_existing=True
        )
        self._meter.gauge("paddock_scheduler_job_interval_seconds", seconds, job_id=job_id)

    def reset(self) -> None:
        """Everything is due now: the clock was set, and the times that were worked out by the old one mean nothing."""
        for job in self._scheduler.get_jobs():
            job.modify(next_run_time=datetime.now(UTC))

    def start(self) -> None:
        self._scheduler.start()
        self._meter.gauge("paddock_scheduler_running", 1)

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)
        self._meter.gauge("paddock_scheduler_running", 0)

    def _count(self, event: JobExecutionEvent) -> None:
        for name in _COUNTERS.get(event.code, ()):
            self._meter.count(name, job_id=event.job_id)
