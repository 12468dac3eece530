"""Reconcile loop: runs a pass on every wake, at every planned time, and again soon after a store failure.

It is no Keeper: its waker gathers the wakes of a moment, and each failure of a pass is counted, and shown as `failure`.
"""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import structlog

from controller.kinds.planning.instance_record import RETIRED
from controller.kinds.planning.plan import Plan
from controller.loop.reconcile_pass import ReconcilePass
from controller.loop.systemd import ALIVE, READY, STOPPING, notify
from controller.loop.tasks.pressure import LOOK_SECONDS
from controller.loop.tasks.store_stats import STORE_SECONDS, publish_store_stats
from controller.loop.wake import LoopWaker
from controller.loop.workers import Workers
from controller.ports import Clock, Conflict, Engine, Jobs, Meter, Store, StoreError, Wake

_log = structlog.get_logger("paddock.loop")
# Several wakes usually come together (an action's result and its events): one pass serves all of them.
_GATHER_SECONDS = 0.005
_STORE_RETRY_SECONDS = 1.0
_PRUNE_SECONDS = 3600.0
_KEEP_CHANGES = 20_000
_KEEP_EVENTS_SECONDS = 24 * 3600.0
_KEEP_EVENTS = 50_000
_KEEP_AUDIT, _KEEP_AUDIT_SECONDS = 1_000_000, 180 * 24 * 3600.0


# Status writes alone change nothing that is planned, and a CPU sample only says when the next is due: that can wait.
_STATUS_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Periodic:
    """Background work, run by a worker about every `seconds`. It must not raise."""

    job_id: str
    seconds: float
    work: Wake


class ReconcileLoop:
    """Runs until `stop`. `failure` is why the last pass failed ("" if it succeeded)."""

    def __init__(
        self,
        *,
        reconcile_pass: ReconcilePass,
        waker: LoopWaker,
        workers: Workers,
        engine: Engine,
        store: Store,
        jobs: Jobs,
        clock: Clock,
        meter: Meter,
        resync_seconds: float,
        periodic: Sequence[Periodic] = (),
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """`periodic` is other work that is done beside the passes.

        `loading` is entered around each pass until one has decided for all objects: that reads and makes what is kept.
        The store is pruned while it `leads`: by one daemon of all hosts.
        """
        self._periodic, self._loading, self._leads = periodic, loading, leads
        self._pass, self._waker, self._workers = reconcile_pass, waker, workers
        self._engine, self._store, self._jobs = engine, store, jobs
        self._clock, self._meter, self._resync_seconds = clock, meter, resync_seconds
        self._stopping = threading.Event()
        self._due: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="reconcile-loop", daemon=True)
        self.failure = "no reconcile pass yet"

    def start(self) -> None:
        """Open the engine, then start the schedule and the loop's thread."""
        self._engine.open(self._waker.wake)
        self._jobs.every("resync", self._resync_seconds, self._resync_seconds / 10, lambda: self._mark("resync"))
        self._jobs.every("pressure", LOOK_SECONDS, 1.0, self._waker.wake)
        self._jobs.every("prune", _PRUNE_SECONDS, _PRUNE_SECONDS / 10, lambda: self._mark("prune"))
        self._jobs.every("store-figures", STORE_SECONDS, STORE_SECONDS / 10, lambda: self._mark("store-figures"))
        self._due.add("store-figures")
        for job in self._periodic:
            self._jobs.every(job.job_id, job.seconds, job.seconds / 10, partial(self._workers.run, job.work))
        self._jobs.start()
        self._thread.start()
        self._waker.wake()
        notify(READY, "STATUS=")

    def stop(self) -> None:
        """Plan nothing new, let the engine calls in flight end, and close the engine. Containers keep running."""
        notify(STOPPING)
        self._stopping.set()
        self._waker.wake()
        self._jobs.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._workers.stop()
        self._record_last_results()
        self._engine.close()

    def _record_last_results(self) -> None:
        """Store the outcomes of the last engine calls, if the store can be reached."""
        try:
            self._pass.run()
        except StoreError as error:
            _log.warning("last outcomes not stored; the next daemon observes them again", error=str(error))

    def _mark(self, job: str) -> None:
        self._due.add(job)
        self._waker.wake()

    def _run(self) -> None:
        wait: float | None = None
        while True:
            if self._waker.wait(wait):
                self._waker.gather(_GATHER_SECONDS)
            if self._stopping.is_set():
                return
            self._meter.gauge("paddock_thread_heartbeat_timestamp_seconds", self._clock.now(), thread="heartbeat")
            notify(ALIVE)  # only here: a loop that hangs, or is never woken, must trip the watchdog
            try:
                self._housekeeping()
            except RuntimeError as error:  # no thread could be started: the rest is done at the next pass
                _log.warning("background jobs postponed", error=str(error))
            with nullcontext() if self._has_loaded() else self._loading():
                wait = self._one_pass()
            # Never longer: setting the clock makes no event, and the schedule depends on the clock.
            wait = self._resync_seconds if wait is None else min(wait, self._resync_seconds)

    def _has_loaded(self) -> bool:
        """Return True once a pass has decided for all objects."""
        return self._pass.last is not None and self._pass.last.observed.revision > 0

    def _housekeeping(self) -> None:
        if "resync" in self._due:
            self._due.discard("resync")
            self._engine.request_observation()
        if "prune" in self._due:
            self._due.discard("prune")
            if self._leads():
                self._workers.run(self._prune)
        if "store-figures" in self._due:
            self._due.discard("store-figures")
            self._workers.run(lambda: publish_store_stats(self._store, self._meter))

    def _prune(self) -> None:
        try:
            now = self._clock.now()
            pruned_count = self._store.prune(
                keep_changes=_KEEP_CHANGES, events_before=now - _KEEP_EVENTS_SECONDS, keep_events=_KEEP_EVENTS
            )
            pruned_count += self._store.audit.prune(before=now - _KEEP_AUDIT_SECONDS, keep=_KEEP_AUDIT)
        except StoreError as error:
            _log.warning("prune failed; retrying in an hour", error=str(error))
        else:
            _log.info("pruned", rows=pruned_count)

    def _one_pass(self) -> float | None:
        """Run a pass. Return seconds until the next one is due (None: only when woken)."""
        try:
            new_plan = self._pass.run()
        except Conflict:
            self._meter.count("paddock_store_retries_total", reason="conflict")
            return 0.0
        except StoreError as error:
            self._meter.gauge("paddock_store_up", 0)
            self._report_failure(str(error))
            return _STORE_RETRY_SECONDS
        except Exception as error:  # a bug must not stop the loop: it is logged, counted and retried
            _log.exception("reconcile pass raised")
            self._meter.count("paddock_reconcile_panics_total", controller="sandbox")
            self._report_failure(f"{type(error).__name__}: {error}; please report this")
            return _STORE_RETRY_SECONDS
        if self.failure:
            _log.info("reconcile loop recovered")
            self.failure = ""
            self._meter.gauge("paddock_store_up", 1)
        if _goes_on(new_plan):
            return 0.0
        seconds_left = math.inf if new_plan.next_wake is None else max(0.0, new_plan.next_wake - self._clock.now())
        # Scrapes and claims read the last snapshot: a pass soon shows them the new statuses.
        seconds_left = min(seconds_left, _STATUS_SECONDS) if new_plan.writes or new_plan.samples else seconds_left
        return None if seconds_left == math.inf else seconds_left

    def _report_failure(self, message: str) -> None:
        self._meter.count("paddock_reconcile_errors_total", controller="sandbox")
        if self.failure != message:
            _log.error("reconcile pass failed", error=message)
            self.failure = message


def _goes_on(new_plan: Plan) -> bool:
    """Return True if the next pass acts on what was just written.

    What was begun for a new instance in this very pass wakes the loop by its end; a pass meanwhile would only slow it.
    """
    writes = new_plan.writes
    begun_uids = {group.ref.uid for group in new_plan.groups}
    instances_changed = any(
        instance.role == RETIRED or not (instance.version or instance.uid in begun_uids)
        for instance in writes.instances
    )
    return instances_changed or bool(writes.finalized or writes.retired or writes.deletions)
