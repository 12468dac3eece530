"""Ports of workflow runs: the work of their stages, and the models that agent stages ask."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from controller.kinds.workflowrun import Run, StageEnd


class RetryLater(Exception):
    """Work on a run that can't be done now; the message says why. Nothing was begun."""


class RunWork(Protocol):
    """The work of runs. Every method is idempotent and returns soon. Raises RetryLater."""

    def create_sandbox(self, run: Run) -> str:
        """Create the run's own sandbox, unless it exists. Return why it can never be created, else ""."""
        ...

    def delete_sandbox(self, run: Run) -> None:
        """Request the deletion of the run's own sandbox; no error if it is gone."""
        ...

    def delete_run(self, run: Run) -> None:
        """Request the deletion of the run; no error if it is gone."""
        ...

    def start_stage(self, run: Run, stage: str, attempt: int) -> None:
        """Start an attempt of a stage, or follow one that was started before, by an earlier daemon too."""
        ...

    def stop_stage(self, run: Run, stage: str, attempt: int) -> None:
        """End an attempt that runs; its end is `Cancelled`, also if it never began."""
        ...

    def end_of(self, run: Run, stage: str, attempt: int) -> StageEnd | None:
        """Return the end of an attempt; None if it has not ended, or not begun."""
        ...

    def forget(self, existing: Collection[str]) -> None:
        """Remove the files of all runs but those of these uids."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to call a tool. `arguments` come from the model: nothing in them may be trusted."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of a conversation. `calls` are of an assistant; `call_id` says what a tool's message answers."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A conversation to go on with, for a model of a Provider or ModelServer of the namespace.

    `run` is the name of the workflow run that asks.
    """

    namespace: str
    provider: str
    model: str
    messages: Sequence[ModelMessage]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 4096
    run: str = ""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's answer, and the tokens that it cost. `cut`: it reached the bound of its tokens before its end."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False


class ModelError(Exception):
    """A failed request to a model; the message is for the user. `again`: it may succeed later.

    `limited`: a limit of requests or tokens was reached. `retry_after`: seconds after which to try again (0: not said).
    """

    def __init__(self, message: str, *, again: bool = False, limited: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.again, self.limited, self.retry_after = again, limited, retry_after


class Models(Protocol):
    """The models of the providers and model servers."""

    def complete(self, request: ModelRequest, *, seconds: float, stopped: Callable[[], bool]) -> ModelReply:
        """Return the model's answer. Blocks for at most `seconds`; may end early if `stopped`. Raises ModelError."""
        ...
