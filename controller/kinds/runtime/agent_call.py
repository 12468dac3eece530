"""Requests to the agent in a sandbox, and what its answers are read as."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Bytes of one request; the agent takes no more.
REQUEST_BYTES = 4 << 20
# Bytes of an answer of `mcp/execute`; the agent makes none larger.
RESULT_BYTES = 1 << 20
# Its tools, as labels of metrics. `mcp` is every request that calls none.
TOOLS = (
    *("exec", "exec.get", "exec.kill", "exec.list"),
    *("file.read", "file.write", "file.list", "file.stat", "file.remove", "file.move", "file.changes"),
    *("build", "test", "git", "mcp"),
)
# Tools that run a command, for which the time limits of commands hold.
RUNNING = frozenset(("exec", "build", "test", "git"))
# The agent's own limit of a command that names none, and the longest that it takes.
DEFAULT_SECONDS, MOST_SECONDS = 300.0, 86_400.0
# The longest that a tool waits for a change or an end.
MOST_WAIT_SECONDS = 600.0
Outcome = Literal["ok", "failed", "refused", "timeout", "unavailable", "invalid", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "failed", "refused", "timeout", "unavailable", "invalid", "cancelled")


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One HTTP request to it. `path` begins with a slash; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class LeftExec:
    """A command of an agent that outlived its caller. `label` is what the caller had it keep."""

    id: str
    label: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Checked answer of `mcp/execute`. `result` is the tool's own structure, for one tool, or a list of those."""

    success: bool
    output: str
    error: str | None
    exit_code: int | None
    result: Any
