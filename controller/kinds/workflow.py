"""Workflow: stages (commands, agents, copies) that each run of it does in one sandbox."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from controller.kinds.base import Flag, Form, Model, Name, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import AbsolutePath, Argument, EnvVar, SandboxSpec, age

OUTPUT_BYTES = 4096  # of one output
PARAMETER_BYTES = 4096
KeepSandbox = Literal["Never", "OnFailure", "Always"]

ParameterName = Annotated[
    Text,
    Field(min_length=1, max_length=63, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$"),
    Form("letters, digits, `-` and `_`, starting with a letter or `_`"),
]
ToolPattern = Annotated[
    Text,
    Field(min_length=1, max_length=64, pattern=r"^[a-z][a-z.]*$"),
    Form("the name of a tool of the sandbox, such as file.read or exec"),
]
ModelName = Annotated[
    Text,
    Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"),
    Form("the name of a model, as its provider has it"),
]


class Parameter(Model):
    """A parameter of the workflow. Stages get it as a variable or in instructions, never inside a command."""

    name: ParameterName
    """Name of the parameter; `$(parameters.NAME)` stands for its value."""
    default: Annotated[Text | None, Field(max_length=PARAMETER_BYTES)] = None
    """Value of a run that gives none. Left out: each run must give one."""
    description: Annotated[Text, Field(max_length=1024)] = ""
    """Description for people."""


class Output(Model):
    """A small text that a stage leaves for later stages: `$(stages.STAGE.outputs.NAME)`."""

    name: ParameterName
    """Name of the output."""
    path: AbsolutePath
    """File that holds it once the stage has succeeded; at most 4 KiB, without a final line break."""


class Retries(Model):
    """Repetition of a stage that failed."""

    limit: Annotated[Whole, Field(ge=0, le=10)] = 0
    """Maximum of further attempts."""
    backoff_seconds: Annotated[Whole, Field(ge=0, le=3600)] = 1
    """Seconds before the second attempt; doubled for each one after that."""


class ExecStage(Model):
    """Commands of a shell, in order, until one fails; or one program. Exactly one of `commands` and `command`."""

    commands: Annotated[tuple[Argument, ...] | None, Field(min_length=1, max_length=256)] = None
    """Lines for `sh`. `$(...)` is refused in them: pass values by `env`, and use them as "$NAME"."""
    command: Annotated[tuple[Argument, ...] | None, Field(min_length=1, max_length=1024)] = None
    """A program and its arguments, without a shell. Nothing is replaced in them."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=128)] = ()
    """Variables of the commands; `$(parameters.NAME)` and `$(stages.STAGE.outputs.NAME)` are replaced in values."""
    working_dir: AbsolutePath | None = None
    """Folder to run in; that of the sandbox if left out."""

    @model_validator(mode="after")
    def _one_form(self) -> "ExecStage":
        if (self.commands is None) == (self.command is None):
            raise ValueError("needs one of `commands:` and `command:`, and not both")
        return self


class CopyStage(Model):
    """Copy of a file or folder out of the sandbox."""

    from_: Annotated[AbsolutePath, Field(alias="from")]
    """File or folder in the sandbox. Links, sockets and devices in it fail the stage."""
    artifact: Name
    """Name of the artifact that it becomes."""
    optional: Flag = False
    """True: a missing path is no failure."""


class AgentStage(Model):
    """A model that works on its instructions with tools of the sandbox, in turns, until it calls none.

    The loop runs outside the sandbox; the transcript is saved at each turn.
    """

    provider: Name
    """Name of the Provider or ModelServer of the namespace."""
    model: ModelName
    """Model to use."""
    instructions: Annotated[Text, Field(min_length=1, max_length=65536)]
    """The task; `$(parameters.NAME)` and `$(stages.STAGE.outputs.NAME)` are replaced in it."""
    tools: Annotated[tuple[ToolPattern, ...], Field(max_length=32)] = ()
    """Tools that the model may call: exec, file.read, file.write, file.list, git. No others."""
    max_turns: Annotated[Whole, Field(ge=1, le=1000)] = 40
    """Maximum of the model's answers."""
    max_tokens: Annotated[Whole, Field(ge=1, le=100_000_000)] = 200_000
    """Maximum of tokens of all turns together, of the prompts and of the answers."""
    working_dir: AbsolutePath | None = None
    """Folder of its commands; that of the sandbox if left out."""


class Stage(Model):
    """One step of a workflow: exactly one of `exec`, `agent` and `copy`."""

    name: Name
    """Name of the stage, unique in the workflow."""
    after: Annotated[tuple[Name, ...] | None, Field(max_length=64)] = None
    """Stages that must have succeeded before. Left out: the one written before this one. Empty: none."""
    exec: ExecStage | None = None
    """Commands to run."""
    agent: AgentStage | None = None
    """A model that works in the sandbox."""
    copy_: Annotated[CopyStage | None, Field(alias="copy")] = None
    """A copy out of the sandbox."""
    timeout_seconds: Annotated[Whole | None, Field(ge=1, le=604_800)] = None
    """Maximum of seconds for one attempt. Default: 3600, or what the sandbox allows any command."""
    retries: Retries = Retries()
    """Repetition after a failure."""
    outputs: Annotated[tuple[Output, ...], Field(max_length=16)] = ()
    """Texts for later stages. An agent stage also has the output `answer`, the beginning of its last answer."""

    @model_validator(mode="after")
    def _one_work(self) -> "Stage":
        if sum(action is not None for action in (self.exec, self.agent, self.copy_)) != 1:
            raise ValueError("needs exactly one of `exec:`, `agent:` and `copy:`")
        return self


class WorkflowSpec(Model):
    """Stages, and the sandbox in which each run does them."""

    parameters: Annotated[tuple[Parameter, ...], Field(max_length=64)] = ()
    """Parameters of a run."""
    sandbox: SandboxSpec | None = None
    """Sandbox of each run, claimed from a pool where one fits. Left out: each run names a sandbox."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=64)]
    """Stages, in order unless `after` says otherwise. After a failure none of them starts."""
    finally_: Annotated[tuple[Stage, ...], Field(alias="finally", max_length=16)] = ()
    """Stages that run at the end, one after the other, whatever happened before."""
    keep_sandbox: KeepSandbox = "Never"
    """Condition on which the sandbox stays after a run: Never, OnFailure, or Always."""


def _stages(obj: StoredObject, _now: float) -> str:
    return ",".join(str(stage.get("name", "")) for stage in obj.spec.get("stages", ()))


KIND = Kind(
    name="Workflow",
    plural="workflows",
    short_names=("wf",),
    spec=WorkflowSpec,
    columns=(
        Column("STAGES", _stages),
        Column("PARAMETERS", lambda obj, _now: str(len(obj.spec.get("parameters", ()))), wide=True),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
