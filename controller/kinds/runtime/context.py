"""Code contexts: interpreters in a sandbox that keep their state between calls, and the events of their executions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from controller.kinds.runtime.secret import Environment

Language = Literal["python", "javascript", "bash"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
State = Literal["starting", "idle", "busy", "ended"]
STATES: tuple[State, ...] = get_args(State)
# Characters of the code of one execution; the agent takes no more.
CODE_CHARACTERS = 2 << 20
# Characters of code that is asked how it may go on; the agent takes no more.
COMPLETED_CHARACTERS = 65536
# Contexts of one sandbox, unless the setting says otherwise.
MOST_CONTEXTS = 8
# Name of a context: a DNS label.
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"

EventType = Literal["started", "stdout", "stderr", "result", "error", "clear", "notice", "ping", "done"]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
Outcome = Literal["ok", "error", "interrupted", "timeout", "died", "cancelled", "unavailable", "refused"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# The statuses that an interpreter's end of an execution may have.
DONE_STATUSES = ("ok", "error", "interrupted", "timeout", "died")


@dataclass(frozen=True, slots=True)
class NewContext:
    """A request for a context. Without a name it gets one; without a folder it starts in the agent's root."""

    language: Language = "python"
    name: str = ""
    cwd: str = ""
    env: Environment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Execution:
    """A request to run code in a context. Without a context it is the default one of the language.

    Without `timeout_seconds` the template's or the host's limit of commands applies; 0 is none.
    """

    code: str
    context: str = ""
    language: Language = "python"
    env: Environment = field(default_factory=dict)
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """One context, as the agent of its sandbox describes it. Nothing of it is trusted, but its form is checked."""

    name: str
    """Name, by which it is called."""
    language: Language
    """Language of its cells."""
    state: State
    """Idle, busy, or lost."""
    engine: str = ""
    """`ipython`, `basic` (Python's standard library alone), `node` or `bash`."""
    version: str = ""
    """Version of the interpreter."""
    reason: str = ""
    """Reason that it is not the better engine, or that the state was lost; empty: neither."""
    cwd: str = ""
    """Folder that it works in."""
    fork_of: str = ""
    """Context that it is a copy of; empty: none."""
    executions: int = 0
    """Number of cells that ran."""
    queued: int = 0
    """Number of cells that wait."""
    created: float = 0.0
    """Time of its start (Unix seconds)."""
    memory_bytes: int = 0
    """Its share of memory, with all that it started."""
    processes: int = 0
    """Number of processes that it started."""


@dataclass(frozen=True, slots=True)
class Completions:
    """Continuations of code at its end: each match replaces that many of its last characters."""

    replaced: int
    matches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContextEvent:
    """One event of an execution. `fields` are those of its type, checked (policy/inside/context_events.py)."""

    type: EventType
    fields: Mapping[str, Any]
