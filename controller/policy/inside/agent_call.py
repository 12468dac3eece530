"""Contents of a request to an agent: which tools it calls, with arguments of which shape, and for how long. Pure."""

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.kinds.runtime.agent_call import DEFAULT_SECONDS, MOST_SECONDS, MOST_WAIT_SECONDS, RUNNING, TOOLS

_NAME = re.compile(r"[a-z][a-zA-Z0-9_]{0,31}")
_MOST_NAMES, _MOST_TOOLS = 16, 32
_SHAPES = {bool: "boolean", int: "number", float: "number", type(None): "null"}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call of a tool. `arguments` are the request's own, to be read or replaced."""

    tool: str
    arguments: Any


def tools_of_execute(body: Any) -> tuple[ToolUse, ...]:
    """Return the tools that a body of `mcp/execute` calls; none of one that is not of its form."""
    if not isinstance(body, dict):
        return ()
    if body.get("type") != "tool_use":
        return tuple(_step(body, {}))
    tools, context = body.get("tools"), body.setdefault("context", {})
    if not isinstance(tools, list):
        return ()
    context = context if isinstance(context, dict) else {}
    return tuple(use for tool in tools[:_MOST_TOOLS] for use in _step(tool, context))


def split_arguments(uses: tuple[ToolUse, ...]) -> None:
    """Replace `args` that are one string by its words, as a shell splits it. One that can't be split stays as it is."""
    for use in _running(uses):
        if isinstance(line := use.arguments.get("args"), str):
            with contextlib.suppress(ValueError):
                use.arguments["args"] = shlex.split(line)


def tools_of_mcp(body: Any) -> tuple[ToolUse, ...]:
    """Return the tools that a JSON-RPC message calls; none of any other message."""
    params = body.get("params") if isinstance(body, dict) and body.get("method") == "tools/call" else None
    if not isinstance(params, dict) or not isinstance(params.get("name"), str):
        return ()
    return (ToolUse(params["name"], params.setdefault("arguments", {})),)


def label_of(uses: tuple[ToolUse, ...]) -> str:
    """Return the metrics' label: the tool, `mcp` without any, `other` for several."""
    names = {use.tool for use in uses}
    if not names:
        return "mcp"
    name = names.pop()
    return "other" if names or name not in TOOLS else name


def audit_details(
    uses: tuple[ToolUse, ...], method: str = "", recorded_name: Callable[[str], str] | None = None
) -> Mapping[str, Any]:
    """Return the audit's detail of a request: names of tools and of arguments, and their shapes, never a value.

    `named` returns a tool's name as it is recorded. Default: the agent's own tools alone are named.
    """
    named = recorded_name or _tool_name
    tools = [{"tool": named(use.tool), "arguments": _shape(use.arguments)} for use in uses]
    if len(tools) == 1:
        return tools[0]
    return {"tools": tools} if tools else {"method": method} if _method(method) else {}


def asked_seconds(uses: tuple[ToolUse, ...]) -> float | None:
    """Return the longest time that its commands ask for; None: no command asks for any."""
    timeouts = [use.arguments.get("timeout_s") for use in _running(uses)]
    return max((float(timeout) for timeout in timeouts if _is_number(timeout)), default=None)


def bound_seconds(uses: tuple[ToolUse, ...], limit: float | None) -> bool:
    """Give a time limit to commands that ask for none; return True if that changed anything."""
    changed = False
    for use in _running(uses) if limit and limit != DEFAULT_SECONDS else ():
        if "timeout_s" not in use.arguments:
            use.arguments["timeout_s"] = min(limit or MOST_SECONDS, MOST_SECONDS)
            changed = True
    return changed


def runs_commands(uses: tuple[ToolUse, ...]) -> bool:
    """Return True if any of the tools runs a command."""
    return any(use.tool in RUNNING for use in uses)


def waited_seconds(uses: tuple[ToolUse, ...]) -> float:
    """Return how long its tools may wait for something to happen, as they are asked to."""
    waits: list[Any] = [use.arguments.get("wait_s") for use in uses if isinstance(use.arguments, dict)]
    return sum(min(float(wait), MOST_WAIT_SECONDS) for wait in waits if _is_number(wait))


def listens(body: Any) -> bool:
    """Return True if a JSON-RPC message opens a stream of notices."""
    return isinstance(body, dict) and body.get("method") == "subscriptions/listen"


def _running(uses: tuple[ToolUse, ...]) -> Iterator[ToolUse]:
    return (use for use in uses if use.tool in RUNNING and isinstance(use.arguments, dict))


def _step(step: Any, context: dict[str, Any]) -> Iterator[ToolUse]:
    """Yield a step's tool, with the parameters that the agent will take."""
    if isinstance(step, str):
        context[step] = context.get(step) or {}
        yield ToolUse(step, context[step])
    elif isinstance(step, dict) and isinstance(name := step.get("tool", step.get("name")), str):
        key = next((key for key in ("parameters", "arguments", "input") if key in step), "parameters")
        yield ToolUse(name, step.setdefault(key, {}))


def _shape(arguments: Any) -> Any:
    if not isinstance(arguments, dict):
        return _type(arguments)
    shape = {name if _NAME.fullmatch(name) else "other": _type(argument) for name, argument in arguments.items()}
    return dict(list(shape.items())[:_MOST_NAMES])


def _type(value: Any) -> str:
    if isinstance(value, str | list | dict):
        return f"{ {str: 'string', list: 'array', dict: 'object'}[type(value)] }({len(value)})"
    return _SHAPES.get(type(value), "other")


def _tool_name(tool: str) -> str:
    return tool if tool in TOOLS else "other"


def _method(method: str) -> bool:
    return bool(re.fullmatch(r"[a-zA-Z/]{1,64}", method))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e7
