"""Workflow runs: each is observed, decided by plan/workflowrun.py, stored, and then worked on, beside the passes.

The thread only decides and writes; the work itself is behind ports.RunWork. What is in memory can be rebuilt: the
progress is in the store, the ends of stages are with the work.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import structlog

from controller.kinds.common.owner_reference import ENDING_FINALIZER
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.kinds.planning.snapshot import Sandbox
from controller.kinds.workflowrun import CONDITION, Progress, Run, SandboxView, StageEnd, progress_to_json
from controller.plan.common.status_json import dated
from controller.plan.workflowrun import (
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

Runs = Mapping[str, Run | None]
RunObserver = Callable[[Runs, Mapping[str, Sandbox], Sequence[StatusWrite]], None]
_RETRY_SECONDS = 1.0
_CREATED_SECONDS = 5.0  # until a created sandbox must have been observed
_FROZEN = ("workflow", "workflowSpec", "parameters")
_log = structlog.get_logger("paddock.workflow")


class WorkflowRuns:
    """Drives all runs. `passed` is called after each reconcile pass, `wake` when work has ended; both only notify."""

    def __init__(
        self, store: Store, work: RunWork, clock: Clock, *, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        self._store, self._work, self._clock, self._may_act = store, work, clock, may_act
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = False
        self._runs: Runs = MappingProxyType({})
        self._sandboxes: Mapping[str, Sandbox] = MappingProxyType({})
        self._fresh: Mapping[str, StatusWrite] = MappingProxyType({})
        self._progress: dict[str, Progress] = {}  # as this daemon stored it last
        self._created: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self._known: frozenset[str] | None = None  # the runs whose files are kept
        self._thread = threading.Thread(target=self._run, name="workflows", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Decide nothing new. What runs is left to the work."""
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def passed(self, runs: Runs, sandboxes: Mapping[str, Sandbox], statuses: Sequence[StatusWrite]) -> None:
        """Take in what a reconcile pass has seen and written."""
        with self._lock:
            changed = runs is not self._runs
            self._runs, self._sandboxes = runs, sandboxes
            self._fresh = {each.ref.uid: each for each in statuses}
        if changed or any(each is not None and not self._is_finished(each) for each in runs.values()):
            self._woken.set()

    def wake(self) -> None:
        """Look at all runs again soon."""
        self._woken.set()

    def step(self) -> float | None:
        """Take a step of every run; return seconds until the next one is due. Raises StoreError: nothing was begun."""
        with self._lock:
            runs, sandboxes, fresh = self._runs, self._sandboxes, self._fresh
        self._forget(runs)
        now = self._clock.now()
        found = [
            self._current(each)
            for each in runs.values()
            if each is not None and (each.obj.deleted_at is None or each.ending)
        ]
        by_name = _by_name(sandboxes, fresh) if found else {}
        decided = [(run, self._decide(run, by_name, now)) for run in found]
        self._write(decided, now)
        waits = [each.next_wake - now for _, each in decided if each.next_wake is not None]
        for run, each in decided:
            for action in each.actions:
                waits += self._act(replace(run, progress=each.progress), action)
        return min(waits, default=None)

    def _run(self) -> None:
        wait: float | None = None
        while True:
            self._woken.wait(wait)
            self._woken.clear()
            if self._stopping:
                return
            try:
                wait = max(0.0, seconds) if self._may_act() and (seconds := self.step()) is not None else None
            except StoreError as error:
                _log.warning("workflow runs postponed", reason=str(error))
                wait = _RETRY_SECONDS
            except Exception:  # a bug must not stop the others' runs: it is logged and retried
                _log.exception("workflow step raised")
                wait = _RETRY_SECONDS

    def _is_finished(self, run: Run) -> bool:
        return (self._progress.get(run.uid) or run.progress).finished

    def _current(self, run: Run) -> Run:
        known = self._progress.get(run.uid)
        return run if known is None else replace(run, progress=known)

    def _forget(self, runs: Runs) -> None:
        """Drop what belongs to runs that are gone."""
        existing = frozenset(runs)
        if existing == self._known:
            return
        if self._known is None or self._known - existing:
            self._work.forget(existing)
        self._known = existing
        for uid in (self._progress.keys() | self._created.keys() | self._refused.keys()) - existing:
            self._progress.pop(uid, None)
            self._created.pop(uid, None)
            self._refused.pop(uid, None)

    def _decide(self, run: Run, by_name: Mapping[tuple[str, str], StoredObject], now: float) -> Step:
        sandbox = sandbox_view(run, by_name.get((run.obj.namespace, run.sandbox_name)))
        if sandbox.state == "Missing" and run.uid in self._refused:
            sandbox = SandboxView("Failed", message=self._refused[run.uid])
        return step(run, RunView(sandbox, self._ends(run)), now)

    def _ends(self, run: Run) -> Mapping[tuple[str, int], StageEnd]:
        found = {}
        for each in run.progress.stages if not run.progress.finished else ():
            if each.state == "Running":
                try:
                    end = self._work.end_of(run, each.name, each.attempt)
                except RetryLater as error:
                    _log.warning("stage not observed", run=str(run.obj.ref), stage=each.name, reason=str(error))
                    continue
                if end is not None:
                    found[each.name, each.attempt] = end
        return found

    def _write(self, decided: Sequence[tuple[Run, Step]], now: float) -> None:
        """Store what has changed, before anything is done for it."""
        changed = [
            (run, each.progress)
            for run, each in decided
            if each.progress != run.progress or "conditions" not in run.obj.status
        ]
        if not changed:
            return
        statuses = tuple(StatusWrite(run.obj.ref, _status(run, progress, now)) for run, progress in changed)
        events = tuple(event for run, progress in changed for event in _events(run, progress, now))
        self._store.record(Writes(statuses=statuses, events=events))
        for run, progress in changed:
            self._progress[run.uid] = progress

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
                case StartStage(stage, attempt):
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
        refused = self._work.create_sandbox(run)
        self._created[run.uid] = now + _CREATED_SECONDS
        if refused:
            self._refused[run.uid] = refused
            self._woken.set()


def _by_name(sandboxes: Mapping[str, Sandbox], fresh: Mapping[str, StatusWrite]) -> dict[tuple[str, str], StoredObject]:
    """Return the sandboxes by namespace and name, with the statuses that the last pass wrote."""
    found = {}
    for uid, each in sandboxes.items():
        written = fresh.get(uid)
        obj = each.obj if written is None else replace(each.obj, status=written.status)
        found[obj.namespace, obj.name] = obj
    return found


def _status(run: Run, progress: Progress, now: float) -> dict[str, object]:
    prior = next((each for each in run.obj.status.get("conditions", ()) if each["type"] == CONDITION), None)
    frozen = {name: run.obj.status[name] for name in _FROZEN if name in run.obj.status}
    made = dated(condition(progress), prior, run.obj.generation, now)
    return {**frozen, **progress_to_json(progress), "conditions": [made]}


def _events(run: Run, progress: Progress, now: float) -> list[Event]:
    """Return the events of this step: stages that failed or are tried again, and the end of the run."""
    found = []
    for each in progress.stages:
        before = run.progress.stage(each.name)
        if before.state == "Running" and each.state in ("Failed", "Waiting"):
            reason = "StageFailed" if each.state == "Failed" else "StageRetried"
            words = f"stage `{each.name}`, attempt {each.attempt}: {each.message or each.reason}"
            found.append(Event(run.obj.ref, "Warning", reason, words, now))
    if progress.finished and not run.progress.finished:
        made = condition(progress)
        good = made.status == "True"
        reason = "RunSucceeded" if good else "RunCancelled" if progress.phase == "Cancelled" else "RunFailed"
        found.append(Event(run.obj.ref, "Normal" if good else "Warning", reason, made.message or "it succeeded", now))
    return found
