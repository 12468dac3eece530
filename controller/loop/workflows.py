"""Workflow runs: each is observed, decided by plan/workflowrun.py, stored, and then worked on, beside the passes.

The thread only decides and writes; the work itself is behind ports.RunWork. What is in memory can be rebuilt: the
progress is in the store, the ends of stages are with the work.

Of many hosts, the one that has a run's sandbox drives the run: its daemon alone starts stages. It becomes the run's
host once, and stays so. What no host has is decided by the daemon that leads. When a sandbox gets its host, or has lost
it, two daemons may decide at once: each writes only over what it has decided on, and acts on what it has written.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

import structlog

from controller.kinds.common.owner_reference import ENDING_FINALIZER
from controller.kinds.meta import Event, StoredObject, stored_condition
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.workflowrun import CONDITION, Progress, Run, SandboxView, StageEnd, progress_to_json
from controller.plan.base.status_json import dated
from controller.plan.fleet.lost_hosts import REASON as HOST_LOST
from controller.plan.workflowrun import (
    ENDING_SECONDS,
    CreateSandbox,
    DeleteRun,
    DeleteSandbox,
    ReleaseRun,
    RunAction,
    RunView,
    StartStage,
    Step,
    StopStage,
    condition,
    sandbox_view,
    step,
)
from controller.ports import Clock, RetryLater, RunWork, Store, StoreError
from controller.ports.fleet import SINGLE, Fleet
from controller.processes.keeper import Keeper

Runs = Mapping[str, Run | None]
RunObserver = Callable[[Runs, Snapshot, Sequence[StatusWrite]], None]
_Decided = list[tuple[Run, Step]]
_RETRY_SECONDS = 1.0
_CREATED_SECONDS = 5.0  # until a created sandbox must have been observed
_FROZEN = ("workflow", "workflowSpec", "parameters")
_log = structlog.get_logger("paddock.workflow")


class WorkflowRuns(Keeper):
    """Drives the runs of this host.

    `observe_pass` is called after each reconcile pass, `wake` when work has ended; both only notify.
    `place` is this host among those of the store.
    """

    name, log_name = "workflows", "paddock.workflow"
    postponing = (StoreError,)

    def __init__(
        self,
        store: Store,
        work: RunWork,
        clock: Clock,
        *,
        may_act: Callable[[], bool] = lambda: True,
        place: Fleet = SINGLE,
    ) -> None:
        super().__init__(may_act)
        self._store, self._work, self._clock, self._place = store, work, clock, place
        self._lock = threading.Lock()
        self._runs: Runs = MappingProxyType({})
        self._sandboxes: Mapping[str, Sandbox] = MappingProxyType({})
        self._unbound: Mapping[str, StoredObject] = MappingProxyType({})
        self._led = False
        self._fresh: Mapping[str, StatusWrite] = MappingProxyType({})
        self._stored: dict[str, Run] = {}  # as this daemon stored them last
        self._created: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self._known: frozenset[str] | None = None  # the runs whose files are kept

    def observe_pass(self, runs: Runs, snapshot: Snapshot, statuses: Sequence[StatusWrite]) -> None:
        """Take in what a reconcile pass has seen and written."""
        with self._lock:
            changed = runs is not self._runs or snapshot.fleet.leads != self._led
            self._runs, self._sandboxes, self._unbound = runs, snapshot.desired.sandboxes, snapshot.fleet.unbound
            self._led = snapshot.fleet.leads
            self._fresh = {status.ref.uid: status for status in statuses}
        if changed or any(run is not None and self._goes_on(run) for run in runs.values()):
            self.wake()

    def step(self) -> float | None:
        """Take a step of every run; return seconds until the next one is due. Raises StoreError: nothing was begun."""
        with self._lock:
            runs = self._runs
            sandboxes = self._sandboxes
            unbound = self._unbound
            fresh = self._fresh
        self._forget(runs)
        now = self._clock.now()
        current_runs = [
            self._current(run)
            for run in runs.values()
            if run is not None and (run.obj.deleted_at is None or run.ending)
        ]
        by_name = _by_name(sandboxes, unbound, fresh) if current_runs else {}
        run_sandboxes = [(run, self._sandbox(run, by_name)) for run in current_runs]
        decisions = [
            (run, self._decide(run, sandbox, now)) for run, sandbox in run_sandboxes if self._is_ours(run, sandbox, now)
        ]
        stored_decisions = self._write(decisions, now)
        waits = [decision.next_wake - now for _, decision in decisions if decision.next_wake is not None]
        waits += [_RETRY_SECONDS] * (len(stored_decisions) < len(decisions))
        for run, decision in stored_decisions:
            for action in decision.actions:
                waits += self._act(replace(run, progress=decision.progress), action)
        return max(0.0, min(waits)) if waits else None

    def _goes_on(self, run: Run) -> bool:
        """Return True if a pass may have brought what a run waits for that is decided here."""
        if run.progress.finished or self._newest(run).progress.finished:
            return False
        return run.progress.host in ("", self._place.host) or _is_lost(run.obj, CONDITION)

    def _newest(self, run: Run) -> Run:
        """Return the run as it is stored, as far as this daemon knows."""
        stored = self._stored.get(run.uid)
        if stored is None:
            return run
        if not self._place.shares_store:  # nobody else writes its progress
            return replace(run, progress=stored.progress)
        return stored if stored.obj.resource_version > run.obj.resource_version else run

    def _current(self, run: Run) -> Run:
        """Return the run as it is stored; its work here is ended if another daemon has ended the run."""
        newest, before = self._newest(run), self._stored.get(run.uid)
        if before is not None and newest.progress.finished and not before.progress.finished:
            self._stored[run.uid] = newest
            for stage in before.progress.stages:
                if stage.state == "Running":
                    self._act(newest, StopStage(stage.name, stage.attempt))
        return newest

    def _sandbox(self, run: Run, by_name: Mapping[tuple[str, str], StoredObject]) -> StoredObject | None:
        """Return the run's sandbox if it is here, or has no host; and wherever it is, if the run is ours to decide on.

        What a pass has seen is not enough to say that it has left its host: it may be older than the run.
        """
        sandbox, host = by_name.get((run.obj.namespace, run.sandbox_name)), run.progress.host
        if not self._place.shares_store or run.progress.finished:
            return sandbox
        if sandbox is not None and host in ("", self._place.host_of(sandbox)):
            return sandbox
        is_ours = sandbox is not None or host == self._place.host or (not host and self._place.leads())
        return self._store.get(SANDBOX.name, run.obj.namespace, run.sandbox_name) if is_ours else None

    def _is_ours(self, run: Run, sandbox: StoredObject | None, now: float) -> bool:
        """Return True if this daemon decides on the run.

        It does where the sandbox is, and where it was when the run began. The leading one does while there is no host;
        for a host that is lost, it removes what is finished, or was deleted long ago.
        """
        is_unbound = sandbox is None or self._place.is_unbound(sandbox)
        # Not `is_own`: see desired.py.
        if self._place.host in (run.progress.host, "" if sandbox is None else self._place.host_of(sandbox)):
            return True
        if not self._place.leads():
            return False
        # Its host may come back and go on with it: only what was deleted long ago, or is nowhere, ends here.
        if run.progress.host and not run.progress.finished:
            over = run.obj.deleted_at is not None and now >= run.obj.deleted_at + ENDING_SECONDS
            return over or (sandbox is not None and is_unbound)
        return is_unbound or (sandbox is not None and _is_lost(sandbox, "Ready"))

    def _forget(self, runs: Runs) -> None:
        """Drop what belongs to runs that are gone."""
        existing = frozenset(runs)
        if existing == self._known:
            return
        if self._known is None or self._known - existing:
            self._work.forget(existing)
        self._known = existing
        for uid in (self._stored.keys() | self._created.keys() | self._refused.keys()) - existing:
            self._stored.pop(uid, None)
            self._created.pop(uid, None)
            self._refused.pop(uid, None)

    def _decide(self, run: Run, obj: StoredObject | None, now: float) -> Step:
        sandbox = sandbox_view(run, obj, self._place.default)
        if sandbox.state == "Missing" and run.uid in self._refused:
            sandbox = SandboxView("Failed", message=self._refused[run.uid])
        return step(run, RunView(sandbox, self._ends(run)), now)

    def _ends(self, run: Run) -> Mapping[tuple[str, int], StageEnd]:
        ends = {}
        for stage in run.progress.stages if not run.progress.finished else ():
            if stage.state == "Running":
                try:
                    end = self._work.end_of(run, stage.name, stage.attempt)
                except RetryLater as error:
                    _log.warning("stage not observed", run=str(run.obj.ref), stage=stage.name, reason=str(error))
                    continue
                if end is not None:
                    ends[stage.name, stage.attempt] = end
        return ends

    def _write(self, decisions: _Decided, now: float) -> _Decided:
        """Store what has changed, before anything is done for it. Return what is stored as it was decided."""
        changed = [
            (run, decision.progress)
            for run, decision in decisions
            if decision.progress != run.progress or "conditions" not in run.obj.status or _is_lost(run.obj, CONDITION)
        ]
        if not changed:
            return decisions
        if self._place.shares_store:
            stale_uids = self._compare_and_set(changed, now)
            return [(run, decision) for run, decision in decisions if run.uid not in stale_uids]
        statuses = tuple(StatusWrite(run.obj.ref, _status(run, progress, now)) for run, progress in changed)
        events = tuple(event for run, progress in changed for event in _events(run, progress, now))
        self._store.record(Writes(statuses=statuses, events=events))
        self._stored |= {run.uid: replace(run, progress=progress) for run, progress in changed}
        return decisions

    def _compare_and_set(self, changed: Sequence[tuple[Run, Progress]], now: float) -> set[str]:
        """Store the runs that are as they were decided on. Return the uids of the others: a pass will bring these."""
        stored = dict[str, Run]()
        with self._store.transaction() as transaction:
            for run, progress in changed:
                obj = transaction.get(run.obj.kind, run.obj.namespace, run.obj.name)
                if obj is None or obj.resource_version != run.obj.resource_version:
                    continue
                obj = transaction.put(replace(obj, status=_status(run, progress, now)))
                stored[run.uid] = replace(run, obj=obj, progress=progress)
                for event in _events(run, progress, now):
                    transaction.add_event(event)
        self._stored |= stored
        return {run.uid for run, _ in changed} - stored.keys()

    def _act(self, run: Run, action: RunAction) -> list[float]:
        """Have an action done; return in how many seconds to look again, if it is known."""
        try:
            match action:
                case CreateSandbox():
                    self._create(run)
                case DeleteSandbox():
                    self._work.delete_sandbox(run)
                case DeleteRun():
                    self._work.delete_run(run)
                case ReleaseRun():
                    self._store.record(Writes(finalized=((run.obj.ref, ENDING_FINALIZER),)))
                case StartStage(stage, attempt) if run.progress.host == self._place.host:
                    self._work.start_stage(run, stage, attempt)
                case StopStage(stage, attempt):
                    self._work.stop_stage(run, stage, attempt)
        except RetryLater as error:
            _log.info("run postponed", run=str(run.obj.ref), action=str(action), reason=str(error))
            return [_RETRY_SECONDS]
        return []

    def _create(self, run: Run) -> None:
        now = self._clock.now()
        if now < self._created.get(run.uid, 0.0):
            return
        refusal = self._work.create_sandbox(run)
        self._created[run.uid] = now + _CREATED_SECONDS
        if refusal:
            self._refused[run.uid] = refusal
            self.wake()


def _by_name(
    sandboxes: Mapping[str, Sandbox], unbound: Mapping[str, StoredObject], fresh: Mapping[str, StatusWrite]
) -> dict[tuple[str, str], StoredObject]:
    """Return the sandboxes by namespace and name, with the statuses that the last pass wrote."""
    sandbox_by_name = {}
    without_host = (stored for stored in unbound.values() if stored.kind == SANDBOX.name)
    for obj in chain((sandbox.obj for sandbox in sandboxes.values()), without_host):
        status = fresh.get(obj.uid)
        sandbox_by_name[obj.namespace, obj.name] = obj if status is None else replace(obj, status=status.status)
    return sandbox_by_name


def _is_lost(obj: StoredObject, type_: str) -> bool:
    """Return True if its condition of this type says that its host is lost."""
    return stored_condition(obj, type_).get("reason") == HOST_LOST


def _status(run: Run, progress: Progress, now: float) -> dict[str, object]:
    prior = next(
        (
            prior_condition
            for prior_condition in run.obj.status.get("conditions", ())
            if prior_condition["type"] == CONDITION
        ),
        None,
    )
    frozen = {name: run.obj.status[name] for name in _FROZEN if name in run.obj.status}
    dated_condition = dated(condition(progress), prior, run.obj.generation, now)
    return {**frozen, **progress_to_json(progress), "conditions": [dated_condition]}


def _events(run: Run, progress: Progress, now: float) -> list[Event]:
    """Return the events of this step: stages that failed or are tried again, and the end of the run."""
    events = []
    for stage in progress.stages:
        before = run.progress.stage(stage.name)
        if before.state == "Running" and stage.state in ("Failed", "Waiting"):
            reason = "StageFailed" if stage.state == "Failed" else "StageRetried"
            message = f"stage `{stage.name}`, attempt {stage.attempt}: {stage.message or stage.reason}"
            events.append(Event(run.obj.ref, "Warning", reason, message, now))
    if progress.finished and not run.progress.finished:
        end_condition = condition(progress)
        good = end_condition.status == "True"
        reason = "RunSucceeded" if good else "RunCancelled" if progress.phase == "Cancelled" else "RunFailed"
        events.append(
            Event(run.obj.ref, "Normal" if good else "Warning", reason, end_condition.message or "it succeeded", now)
        )
    return events
