"""Decisions on one workflow run: (the run as stored, what is observed of it, now) -> its progress, and what to do.

Every action is idempotent and has an id that the stored progress gives: the progress is written first, then acted on.
A stage that runs is asked for again at every step; whoever does the work starts it once for each attempt.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from controller.kinds.host import NAME
from controller.kinds.meta import Condition, StoredObject
from controller.kinds.planning.binding import host_of
from controller.kinds.workflow import Stage
from controller.kinds.workflowrun import (
    CONDITION,
    ENDED,
    Progress,
    Run,
    RunPhase,
    SandboxView,
    StageEnd,
    StageProgress,
)
from controller.plan.sandbox.attest import REASON as NOT_SECURED
from controller.policy.workflow import dependencies

CANCELLED, DEADLINE, STAGE_FAILED, SANDBOX_FAILED = "Cancelled", "DeadlineExceeded", "StageFailed", "SandboxFailed"
FINALLY_FAILED = "FinallyFailed"
_KILLING = (CANCELLED, DEADLINE)
_WAKEABLE = ("IdleReaped",)  # suspended as idle: the next command starts it
# Reasons of a sandbox that waits for a change of its spec, and starts no more without one.
_HOPELESS = (NOT_SECURED, "InvalidConfig", "NoDeviceDriver")
_LONGEST_BACKOFF_SECONDS = 3600.0
ENDING_SECONDS = 300.0
"""Seconds that a deleted run has for the end of its stages, and its `finally` stages."""


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything observed of a run. `ends` holds attempts that have ended, by stage and number."""

    sandbox: SandboxView = field(default_factory=SandboxView)
    ends: Mapping[tuple[str, int], StageEnd] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class CreateSandbox:
    """Create the run's sandbox, unless it exists."""

    def __str__(self) -> str:
        return "create sandbox"


@dataclass(frozen=True, slots=True)
class DeleteSandbox:
    """Delete the run's own sandbox; no error if it is gone."""

    def __str__(self) -> str:
        return "delete sandbox"


@dataclass(frozen=True, slots=True)
class DeleteRun:
    """Delete the finished run."""

    def __str__(self) -> str:
        return "delete run"


@dataclass(frozen=True, slots=True)
class ReleaseRun:
    """Let the deletion of a run go on: its stages have ended, or their time is over."""

    def __str__(self) -> str:
        return "release run"


@dataclass(frozen=True, slots=True)
class StartStage:
    """Start an attempt of a stage, or follow it if it was started before."""

    stage: str
    attempt: int

    def __str__(self) -> str:
        return f"start {self.stage}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class StopStage:
    """End an attempt of a stage that runs."""

    stage: str
    attempt: int

    def __str__(self) -> str:
        return f"stop {self.stage}.{self.attempt}"


RunAction = CreateSandbox | DeleteSandbox | DeleteRun | ReleaseRun | StartStage | StopStage


@dataclass(frozen=True, slots=True)
class Step:
    """The next progress, then the actions. `next_wake` is when to look again if nothing happens (Unix seconds)."""

    progress: Progress
    actions: tuple[RunAction, ...] = ()
    next_wake: float | None = None

    def __str__(self) -> str:
        progress = self.progress
        lines = [f"{progress.phase}{f' ({progress.stopping})' if progress.stopping else ''}"]
        lines += [_stage_text(stage) for stage in progress.stages]
        lines += [f"> {action}" for action in self.actions]
        return "\n".join(lines)


def step(run: Run, view: RunView, now: float) -> Step:
    """Return the next step of a run."""
    if run.progress.finished:
        return _after_the_end(run, view, now)
    progress = _begin(run, view, now)
    progress = _with_attempt_ends(run, progress, view, now)
    progress = _with_stopping(run, progress, view, now)
    actions: list[RunAction] = []
    if run.obj.deleted_at is not None and now >= run.obj.deleted_at + ENDING_SECONDS:
        actions += [StopStage(stage.name, stage.attempt) for stage in progress.stages if stage.state == "Running"]
        progress = _give_up_stages(progress)
    if _creates_sandbox(run, progress, view):
        actions.append(CreateSandbox())
    progress = _skip_stages(run, progress)
    if not _has_ended(progress, run.workflow.stages):
        progress = _start_stages(run, progress, view, now)
    else:
        progress = _start_finally_stage(run, progress, view, now)
    actions += _stage_actions(run, progress, view)
    if _has_ended(progress, run.workflow.stages) and _has_ended(progress, run.workflow.finally_):
        progress = _with_end(run, progress, now)
        end_step = _after_the_end(replace(run, progress=progress), view, now)
        return replace(end_step, actions=(*actions, *end_step.actions))
    return Step(progress, tuple(actions), _next_wake(run, progress, now))


def sandbox_view(run: Run, obj: StoredObject | None, default: str = NAME) -> SandboxView:
    """Return the run's sandbox as observed. An object of that name that is not the run's own is a failure.

    `default` is the host of sandboxes that name none. One that left the run's host is a failure, too.
    """
    if obj is None:
        return SandboxView()
    # A run must not work in a sandbox of the same name that somebody else made.
    if run.spec.sandbox_ref is None and not any(
        owner_reference.get("uid") == run.uid for owner_reference in obj.owner_references
    ):
        return SandboxView("Failed", message=f"sandbox `{obj.name}` exists, and is not of this run; delete one of them")
    if obj.deleted_at is not None:
        return SandboxView(
            state="Failed", uid=obj.uid, message=f"its sandbox `{obj.name}` is being deleted", is_stopping=True
        )
    host = host_of(obj, default)
    if run.progress.host not in ("", host):
        message = (
            f"its sandbox `{obj.name}` left host {run.progress.host}, which was lost, and begins anew; run it again"
        )
        return SandboxView(state="Failed", uid=obj.uid, message=message)
    conditions: Mapping[str, Mapping[str, str]] = {
        stored["type"]: stored for stored in obj.status.get("conditions", ())
    }
    for type_, status in (("Accepted", "False"), ("Finished", "True")):
        if conditions.get(type_, {}).get("status") == status:
            message = f"its sandbox `{obj.name}`: {conditions[type_]['reason']}: {conditions[type_].get('message', '')}"
            return SandboxView(state="Failed", uid=obj.uid, message=message, host=host)
    ready = conditions.get("Ready", {})
    if ready.get("status") == "False" and ready.get("reason") in _HOPELESS:
        message = f"its sandbox `{obj.name}`: {ready['reason']}: {ready.get('message', '')}"
        return SandboxView(state="Failed", uid=obj.uid, message=message, host=host)
    # A suspended one is usable: the first command wakes it.
    is_usable = ready.get("status") == "True" or (
        ready.get("reason") in _WAKEABLE and obj.spec.get("runState", "Running") == "Running"
    )
    message = "" if is_usable else f"waits for sandbox `{obj.name}`: {ready.get('reason', 'Pending')}"
    message += f": {ready['message']}" if message and ready.get("message") else ""
    return SandboxView(state="Ready" if is_usable else "Pending", uid=obj.uid, message=message, host=host)


def condition(progress: Progress) -> Condition:
    """Return the condition Succeeded of a run."""
    match progress.phase:
        case "Succeeded":
            return Condition(CONDITION, "True", "Succeeded", progress.message)
        case "Failed" | "Cancelled":
            return Condition(CONDITION, "False", progress.stopping or "StageFailed", progress.message)
    running = ", ".join(stage.name for stage in progress.stages if stage.state == "Running")
    reason = "Stopping" if progress.stopping else "RunInProgress"
    message = f"stage {running} runs" if running else progress.message or "waits for its sandbox"
    return Condition(CONDITION, "Unknown", reason, message)


def _stage_text(progress: StageProgress) -> str:
    reason = " ".join(filter(None, (progress.reason, progress.message)))
    attempt = f" #{progress.attempt}" if progress.attempt else ""
    return f"  {progress.name}: {progress.state}{attempt}{f'  # {reason}' if reason else ''}"


def _begin(run: Run, view: RunView, now: float) -> Progress:
    """Return the progress of a run that has begun, with its sandbox: the first one and its host stay noted."""
    progress = run.progress
    if progress.phase == "Pending":
        progress = replace(progress, phase="Running", started_at=now, sandbox_name=run.sandbox_name)
    if view.sandbox.uid and not progress.sandbox_uid:
        progress = replace(progress, sandbox_uid=view.sandbox.uid)
    if view.sandbox.host and not progress.host:
        progress = replace(progress, host=view.sandbox.host)
    if not progress.stopping:
        progress = replace(progress, message=view.sandbox.message if view.sandbox.state == "Pending" else "")
    return progress


def _with_attempt_ends(run: Run, progress: Progress, view: RunView, now: float) -> Progress:
    """Return the progress with the attempts that have ended."""
    sandbox_fault = progress.message if progress.stopping == SANDBOX_FAILED else _sandbox_fault(progress, view)
    for stage_progress in progress.stages:
        end = (
            view.ends.get((stage_progress.name, stage_progress.attempt)) if stage_progress.state == "Running" else None
        )
        stage = run.stage(stage_progress.name)
        if end is not None and stage is not None:
            progress = progress.with_stage(
                _end_attempt(run, progress, stage_progress, end=end, stage=stage, sandbox_fault=sandbox_fault, now=now)
            )
    return progress


def _end_attempt(
    run: Run,
    progress: Progress,
    stage_progress: StageProgress,
    end: StageEnd,
    stage: Stage,
    sandbox_fault: str,
    now: float,
) -> StageProgress:
    """Return the stage after the end of an attempt. `sandbox_fault` is what is wrong with its sandbox ("": nothing)."""
    attempt = replace(stage_progress, exit_code=end.exit_code, reason=end.reason, message=end.message, finished_at=now)
    if end.state == "Succeeded":
        return replace(attempt, state="Succeeded", outputs=end.outputs, retry_at=0.0)
    is_killed = progress.stopping in _KILLING or run.cancelled
    if _is_main_stage(run, stage_progress.name) and is_killed:
        return replace(attempt, state="Cancelled")
    if sandbox_fault:
        return replace(attempt, state="Failed", reason=SANDBOX_FAILED, message=sandbox_fault)
    if end.repeatable and stage_progress.attempt <= stage.retries.limit and not progress.stopping:
        pause = min(stage.retries.backoff_seconds * 2.0 ** (stage_progress.attempt - 1), _LONGEST_BACKOFF_SECONDS)
        return replace(attempt, state="Waiting", retry_at=now + pause)
    return replace(attempt, state="Failed")


def _with_stopping(run: Run, progress: Progress, view: RunView, now: float) -> Progress:
    """Return the progress with why no further stage starts. The first reason stays, but for a request to cancel."""
    if _has_ended(progress, run.workflow.stages) and progress.stopping in ("", *_KILLING):
        # All stages have ended: a deadline or a cancel that comes now is no reason any more.
        failed = next((stage for stage in _main_stages(run, progress) if stage.state == "Failed"), None)
        if failed is None or progress.stopping:
            return progress
    if progress.stopping in _KILLING:
        return progress
    if run.cancelled and not _has_ended(progress, run.workflow.stages):
        message = "it is being deleted" if run.ending else "cancelled on request"
        return replace(progress, stopping=CANCELLED, message=message)
    if now >= progress.started_at + run.spec.active_deadline_seconds and not _has_ended(progress, run.workflow.stages):
        message = f"it did not end within {run.spec.active_deadline_seconds} s (activeDeadlineSeconds)"
        return replace(progress, stopping=DEADLINE, message=message)
    if progress.stopping:
        return progress
    failed = next((stage for stage in _main_stages(run, progress) if stage.state == "Failed"), None)
    if failed is not None:
        return _with_failure(progress, failed, STAGE_FAILED)
    if sandbox_fault := _sandbox_fault(progress, view):
        return replace(progress, stopping=SANDBOX_FAILED, message=sandbox_fault)
    return progress


def _with_failure(progress: Progress, failed: StageProgress, reason: str) -> Progress:
    """Return the progress that stops because of a failed stage, or of the sandbox where that was the cause."""
    if failed.reason == SANDBOX_FAILED:
        return replace(progress, stopping=SANDBOX_FAILED, message=failed.message)
    return replace(
        progress, stopping=reason, message=f"stage `{failed.name}` failed: {failed.message or failed.reason}"
    )


def _give_up_stages(progress: Progress) -> Progress:
    """Return the progress with every stage ended, of a deleted run whose time is over."""
    message = f"the run was deleted, and its stages did not end within {ENDING_SECONDS:g} s"
    for stage in progress.stages:
        if stage.state not in ENDED:
            progress = progress.with_stage(replace(stage, state="Cancelled", reason=CANCELLED, message=message))
    return progress


def _sandbox_fault(progress: Progress, view: RunView) -> str:
    """Return why no stage can run in the sandbox any more; "" if one can, or may."""
    if view.sandbox.state == "Failed":
        return view.sandbox.message or "its sandbox failed"
    if view.sandbox.state == "Missing" and progress.sandbox_uid:
        return f"its sandbox `{progress.sandbox_name}` was deleted"
    if view.sandbox.uid and view.sandbox.uid != progress.sandbox_uid:
        return f"its sandbox `{progress.sandbox_name}` was deleted and recreated"
    return ""


def _creates_sandbox(run: Run, progress: Progress, view: RunView) -> bool:
    """Return True if the run's own sandbox is still to be created: one that was there and is gone is a failure."""
    has_own_sandbox = run.spec.sandbox_ref is None
    return has_own_sandbox and view.sandbox.state == "Missing" and not progress.sandbox_uid and not progress.stopping


def _skip_stages(run: Run, progress: Progress) -> Progress:
    """Return the progress with those stages ended that will never start."""
    if not progress.stopping:
        return progress
    for stage in _main_stages(run, progress):
        if stage.state == "Waiting":
            is_killed = progress.stopping in _KILLING
            reason = stage.reason or progress.stopping
            progress = progress.with_stage(
                replace(stage, state="Cancelled" if is_killed else "Skipped", reason=reason, retry_at=0.0)
            )
    return progress


def _start_stages(run: Run, progress: Progress, view: RunView, now: float) -> Progress:
    """Return the progress with those stages running whose turn it is."""
    if progress.stopping or view.sandbox.state != "Ready":
        return progress
    dependencies_by_stage = dependencies(run.workflow.stages)
    for stage in _main_stages(run, progress):
        ready = all(progress.stage(name).state == "Succeeded" for name in dependencies_by_stage.get(stage.name, ()))
        if stage.state == "Waiting" and ready and now >= stage.retry_at:
            progress = progress.with_stage(_next_attempt(stage, now))
    return progress


def _start_finally_stage(run: Run, progress: Progress, view: RunView, now: float) -> Progress:
    """Return the progress with the next `finally` stage running, or all skipped that have no sandbox to run in.

    They run one after the other, also after a failure, a deadline or a cancel.
    """
    for stage in run.workflow.finally_:
        stage_progress = progress.stage(stage.name)
        if stage_progress.state in ENDED:
            continue
        sandbox_fault = _sandbox_fault(progress, view) or ("" if progress.sandbox_uid else progress.message)
        if stage_progress.state == "Running":
            return progress
        if sandbox_fault:
            progress = progress.with_stage(
                replace(stage_progress, state="Skipped", reason=SANDBOX_FAILED, message=sandbox_fault)
            )
            continue
        if view.sandbox.state == "Ready" and now >= stage_progress.retry_at:
            return progress.with_stage(_next_attempt(stage_progress, now))
        return progress
    return progress


def _next_attempt(stage_progress: StageProgress, now: float) -> StageProgress:
    """Return the stage in its next attempt: what the last one left is gone, the time of the first start stays."""
    started_at = stage_progress.started_at or now
    return StageProgress(stage_progress.name, "Running", stage_progress.attempt + 1, started_at=started_at)


def _stage_actions(run: Run, progress: Progress, view: RunView) -> Iterable[RunAction]:
    """Return the actions for the stages that run."""
    for stage in progress.stages:
        if stage.state != "Running":
            continue
        is_stopped = progress.stopping in (*_KILLING, SANDBOX_FAILED) and _is_main_stage(run, stage.name)
        if is_stopped or _sandbox_fault(progress, view):
            yield StopStage(stage.name, stage.attempt)
        else:
            yield StartStage(stage.name, stage.attempt)


def _with_end(run: Run, progress: Progress, now: float) -> Progress:
    """Return the progress of a run that ends now: a `finally` stage that failed fails a run that nothing else did."""
    failed = next(
        (stage for stage in progress.stages if stage.state == "Failed" and not _is_main_stage(run, stage.name)), None
    )
    if failed is not None and not progress.stopping:
        progress = _with_failure(progress, failed, FINALLY_FAILED)
    phase: RunPhase = "Succeeded"
    if progress.stopping:
        phase = "Cancelled" if progress.stopping == CANCELLED else "Failed"
    return replace(progress, phase=phase, finished_at=now)


def _after_the_end(run: Run, view: RunView, now: float) -> Step:
    """Remove what a finished run leaves, and the run itself when its time is over."""
    progress, actions = run.progress, list[RunAction]()
    is_kept = run.keep == "Always" or (run.keep == "OnFailure" and progress.phase != "Succeeded")
    is_kept = is_kept and not run.ending  # it goes with its run
    is_present = view.sandbox.state != "Missing" and not view.sandbox.is_stopping
    if run.spec.sandbox_ref is None and is_present and not is_kept:
        actions.append(DeleteSandbox())
    if run.ending:
        return Step(progress, (*actions, ReleaseRun()))
    ttl = run.spec.ttl_seconds_after_finished
    if ttl is None:
        return Step(progress, tuple(actions))
    if now >= progress.finished_at + ttl:
        return Step(progress, (*actions, DeleteRun()))
    return Step(progress, tuple(actions), progress.finished_at + ttl)


def _next_wake(run: Run, progress: Progress, now: float) -> float | None:
    """Return when something is due without an event: a retry, the deadline, the end of a deleted run's time."""
    times = [stage.retry_at for stage in progress.stages if stage.state == "Waiting" and stage.retry_at > now]
    if progress.stopping not in _KILLING:
        times.append(progress.started_at + run.spec.active_deadline_seconds)
    if run.obj.deleted_at is not None:
        times.append(run.obj.deleted_at + ENDING_SECONDS)
    return min((time for time in times if time > now), default=None)


def _has_ended(progress: Progress, stages: Sequence[Stage]) -> bool:
    """Return True if all of these stages have ended."""
    return all(progress.stage(stage.name).state in ENDED for stage in stages)


def _main_stages(run: Run, progress: Progress) -> list[StageProgress]:
    """Return the stages that are no `finally` stages."""
    return [progress.stage(stage.name) for stage in run.workflow.stages]


def _is_main_stage(run: Run, name: str) -> bool:
    return any(stage.name == name for stage in run.workflow.stages)
