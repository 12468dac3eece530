"""WorkflowRun: one run of a workflow, and its progress as its status has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from controller.kinds.base import Model, Name, Text, Whole
from controller.kinds.common.owner_reference import ENDING_FINALIZER
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import LONGEST_SECONDS, age
from controller.kinds.workflow import PARAMETER_BYTES, KeepSandbox, ParameterName, Stage, WorkflowSpec

CONDITION = "Succeeded"
RUN_LABEL = "paddock/workflow-run"
"""On the sandbox of a run: the name of the run."""
StageState = Literal["Waiting", "Running", "Succeeded", "Failed", "Skipped", "Cancelled"]
RunPhase = Literal["Pending", "Running", "Succeeded", "Failed", "Cancelled"]
ENDED: tuple[StageState, ...] = ("Succeeded", "Failed", "Skipped", "Cancelled")
RUN_ENDED: tuple[RunPhase, ...] = ("Succeeded", "Failed", "Cancelled")
NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_NAME_LETTERS = 44  # of the run's name in that of its sandbox


class ParameterValue(Model):
    """Value of a parameter in one run."""

    name: ParameterName
    """Name of the parameter."""
    value: Annotated[Text, Field(max_length=PARAMETER_BYTES)]
    """Its value."""


class WorkflowRef(Model):
    """Reference to a Workflow of the same namespace."""

    name: Name
    """Name of the Workflow."""


class SandboxRef(Model):
    """Reference to a Sandbox of the same namespace."""

    name: Name
    """Name of the Sandbox."""


class WorkflowRunSpec(Model):
    """One run. The workflow, its sandbox and the parameters are fixed when the run is created."""

    workflow_ref: WorkflowRef | None = None
    """Workflow to run. One of `workflowRef` and `workflow` is required."""
    workflow: WorkflowSpec | None = None
    """The workflow itself, inline."""
    sandbox_ref: SandboxRef | None = None
    """Sandbox to run in, which stays. Left out: one of the run's own, as the workflow describes it."""
    parameters: Annotated[tuple[ParameterValue, ...], Field(max_length=64)] = ()
    """Values of the workflow's parameters."""
    run_state: Literal["Running", "Cancelled"] = "Running"
    """Cancelled: stop its stages, do the `finally` stages, and end."""
    active_deadline_seconds: Annotated[Whole, Field(ge=1, le=LONGEST_SECONDS)] = 86_400
    """Seconds after its start at which it is stopped as cancelled ones are, and fails."""
    ttl_seconds_after_finished: Annotated[Whole | None, Field(ge=0, le=LONGEST_SECONDS)] = None
    """Seconds after its end at which it is deleted with its artifacts and logs. Default: never."""
    keep_sandbox: KeepSandbox | None = None
    """Overrides the workflow's `keepSandbox`."""

    @model_validator(mode="after")
    def _one_workflow(self) -> "WorkflowRunSpec":
        if (self.workflow is None) == (self.workflow_ref is None):
            raise ValueError("needs one of `workflowRef:` and `workflow:`, and not both")
        return self


@dataclass(frozen=True, slots=True)
class StageProgress:
    """State of one stage. Times are Unix seconds, 0 if it did not happen."""

    name: str
    """Name of the stage."""
    state: StageState = "Waiting"
    """Waiting, Running, or how it ended."""
    attempt: int = 0
    """Number of the attempt, from 1; 0: none began."""
    started_at: float = 0.0
    """Start of the latest attempt."""
    finished_at: float = 0.0
    """End of the stage."""
    retry_at: float = 0.0
    """Time of the next attempt."""
    exit_code: int | None = None
    """Exit code of its command; None: it has none, or none yet."""
    reason: str = ""
    """Reason of a failure, such as Timeout."""
    message: str = ""
    """The same for people."""
    outputs: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    """Values that later stages may use, by name."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a run. `stopping` is why no further stage starts; "" while they do.

    `host` is that of its sandbox, whose daemon does the stages and keeps their files; "" until it has one.
    """

    phase: RunPhase = "Pending"
    started_at: float = 0.0
    finished_at: float = 0.0
    stopping: str = ""
    message: str = ""
    sandbox_name: str = ""
    sandbox_uid: str = ""
    host: str = ""
    stages: tuple[StageProgress, ...] = ()

    @property
    def finished(self) -> bool:
        return self.phase in RUN_ENDED

    def stage(self, name: str) -> StageProgress:
        """Return the stage of that name; one that waits if none is stored."""
        return next((stage for stage in self.stages if stage.name == name), StageProgress(name))

    def with_stage(self, changed: StageProgress) -> "Progress":
        """Return the progress with that stage replaced."""
        return replace(self, stages=tuple(changed if stage.name == changed.name else stage for stage in self.stages))


SandboxState = Literal["Missing", "Pending", "Ready", "Failed"]


@dataclass(frozen=True, slots=True)
class SandboxView:
    """The run's sandbox as observed. `Failed`: no stage can run in it any more, for the reason in `message`.

    `is_stopping`: its deletion was requested. `host` is empty until it has one.
    """

    state: SandboxState = "Missing"
    uid: str = ""
    message: str = ""
    is_stopping: bool = False
    host: str = ""


@dataclass(frozen=True, slots=True)
class StageEnd:
    """The end of one attempt of a stage. `repeatable`: another attempt may succeed.

    `cpu_seconds` and `memory_peak_bytes` are of its sandbox, where they were measured.
    """

    state: Literal["Succeeded", "Failed", "Cancelled"]
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    repeatable: bool = True
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A stored run with its spec, and the workflow and parameters as they were at its creation."""

    obj: StoredObject
    spec: WorkflowRunSpec
    workflow: WorkflowSpec
    parameters: Mapping[str, str]
    progress: Progress

    @property
    def uid(self) -> str:
        return self.obj.uid

    @property
    def ending(self) -> bool:
        """True if it is being deleted, and goes once its stages have ended."""
        return self.obj.deleted_at is not None and ENDING_FINALIZER in self.obj.finalizers

    @property
    def cancelled(self) -> bool:
        """True if its stages are to stop on request."""
        return self.spec.run_state == "Cancelled" or self.ending

    @property
    def keep(self) -> KeepSandbox:
        return self.spec.keep_sandbox or self.workflow.keep_sandbox

    @property
    def sandbox_name(self) -> str:
        """The sandbox it runs in: the named one, else one with a name derived from the run's."""
        if self.spec.sandbox_ref is not None:
            return self.spec.sandbox_ref.name
        return f"{self.obj.name[:_NAME_LETTERS].rstrip('-')}-{self.uid.replace('-', '')[:6]}"

    def stage(self, name: str) -> Stage | None:
        """Return the stage of that name, a `finally` stage too."""
        stages = (*self.workflow.stages, *self.workflow.finally_)
        return next((stage for stage in stages if stage.name == name), None)


def frozen_status(workflow: WorkflowSpec, parameters: Mapping[str, str], workflow_obj: StoredObject | None) -> Any:
    """Return the first status of a run: the workflow and parameters that hold for it, whatever changes later."""
    source = {"name": workflow_obj.name, "generation": workflow_obj.generation} if workflow_obj else {}
    return {
        **({"workflow": source} if source else {}),
        "workflowSpec": workflow.model_dump(mode="json", by_alias=True, exclude_none=True),
        "parameters": [{"name": name, "value": value} for name, value in parameters.items()],
        **progress_to_json(first_progress(workflow)),
    }


def first_progress(workflow: WorkflowSpec) -> Progress:
    """Return the progress of a run that has not begun."""
    return Progress(stages=tuple(StageProgress(stage.name) for stage in (*workflow.stages, *workflow.finally_)))


def read_run(obj: StoredObject) -> Run | None:
    """Return the stored run; None if this version can't read it."""
    status = obj.status
    try:
        spec = WorkflowRunSpec.model_validate(obj.spec)
        workflow = WorkflowSpec.model_validate(status.get("workflowSpec"))
        parameters = {str(parameter["name"]): str(parameter["value"]) for parameter in status.get("parameters", ())}
        return Run(obj, spec, workflow, parameters, progress_of(status, workflow))
    except (ValidationError, KeyError, TypeError, ValueError):
        return None


def progress_to_json(progress: Progress) -> dict[str, Any]:
    """Return the progress as fields of the status; the conditions are the planner's."""
    fields: dict[str, Any] = {"phase": progress.phase}
    fields |= _texts(startTime=moment(progress.started_at), completionTime=moment(progress.finished_at))
    fields |= _texts(stopping=progress.stopping, message=progress.message, host=progress.host)
    if progress.sandbox_name:
        fields["sandboxRef"] = {"name": progress.sandbox_name, **_texts(uid=progress.sandbox_uid)}
    return fields | {"stages": [_stage_to_json(stage) for stage in progress.stages]}


def progress_of(status: Mapping[str, Any], workflow: WorkflowSpec) -> Progress:
    """Return the progress that a status holds. Raises KeyError, TypeError or ValueError for one that is not ours."""
    if "stages" not in status:
        return first_progress(workflow)
    sandbox = status.get("sandboxRef", {})
    return Progress(
        phase=status["phase"],
        started_at=seconds_of(status.get("startTime", "")),
        finished_at=seconds_of(status.get("completionTime", "")),
        stopping=status.get("stopping", ""),
        message=status.get("message", ""),
        sandbox_name=sandbox.get("name", ""),
        sandbox_uid=sandbox.get("uid", ""),
        host=status.get("host", ""),
        stages=tuple(_stage_of(stage) for stage in status["stages"]),
    )


def moment(seconds: float) -> str:
    """Return Unix seconds as a Kubernetes MicroTime; "" for 0."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if seconds else ""


def seconds_of(text: str) -> float:
    """Return the Unix seconds of a MicroTime; 0 for ""."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _stage_to_json(stage: StageProgress) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": stage.name, "state": stage.state, "attempt": stage.attempt}
    fields |= _texts(
        startTime=moment(stage.started_at),
        completionTime=moment(stage.finished_at),
        retryTime=moment(stage.retry_at),
        reason=stage.reason,
        message=stage.message,
    )
    fields |= {} if stage.exit_code is None else {"exitCode": stage.exit_code}
    outputs = [{"name": name, "value": value} for name, value in stage.outputs.items()]
    return fields | ({"outputs": outputs} if outputs else {})


def _stage_of(stored: Mapping[str, Any]) -> StageProgress:
    return StageProgress(
        name=stored["name"],
        state=stored["state"],
        attempt=int(stored["attempt"]),
        started_at=seconds_of(stored.get("startTime", "")),
        finished_at=seconds_of(stored.get("completionTime", "")),
        retry_at=seconds_of(stored.get("retryTime", "")),
        exit_code=stored.get("exitCode"),
        reason=stored.get("reason", ""),
        message=stored.get("message", ""),
        outputs={output["name"]: output["value"] for output in stored.get("outputs", ())},
    )


def _texts(**fields: str) -> dict[str, str]:
    return {name: text for name, text in fields.items() if text}


def _phase(obj: StoredObject, _now: float) -> str:
    return "Terminating" if obj.deleted_at is not None else str(obj.status.get("phase", "Pending"))


def _ends_later(obj: StoredObject) -> bool:
    """Return True for a run under way that must stop its stages in another sandbox, or do its `finally` stages."""
    last = obj.status.get("workflowSpec", {}).get("finally")
    return obj.status.get("phase") == "Running" and bool(last or obj.spec.get("sandboxRef"))


def _done(obj: StoredObject, _now: float) -> str:
    stages = obj.status.get("stages", ())
    return f"{sum(stage.get('state') == 'Succeeded' for stage in stages)}/{len(stages)}"


def _current(obj: StoredObject, _now: float) -> str:
    running = [str(stage["name"]) for stage in obj.status.get("stages", ()) if stage.get("state") == "Running"]
    return ",".join(running) or "-"


def _duration(obj: StoredObject, now: float) -> str:
    started, end = (seconds_of(obj.status.get(name, "")) for name in ("startTime", "completionTime"))
    return age((end or now) - started) if started else "-"


KIND = Kind(
    name="WorkflowRun",
    plural="workflowruns",
    short_names=("wfr",),
    spec=WorkflowRunSpec,
    ends_later=_ends_later,
    columns=(
        Column("STATUS", _phase),
        Column("STAGES", _done),
        Column("RUNNING", _current),
        Column("DURATION", _duration),
        Column("WORKFLOW", lambda obj, _now: str(obj.spec.get("workflowRef", {}).get("name", "(inline)"))),
        Column("SANDBOX", lambda obj, _now: str(obj.status.get("sandboxRef", {}).get("name", "-")), wide=True),
        Column("HOST", lambda obj, _now: str(obj.status.get("host") or "-"), wide=True),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
