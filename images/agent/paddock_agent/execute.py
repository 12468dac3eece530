"""`POST /mcp/execute`: tools without JSON-RPC, one by name or several as a tool use."""

from __future__ import annotations

import json

from .http import Request
from .protocol import Exchange, dumps, within
from .replies import Reply
from .tools import Call, Tools

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from typing import Any


_MAX_STEPS = 32


class _Refused(Exception):
    """A body that is not of either form."""


class Execute:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def post(self, request: Request, exchange: Exchange) -> None:
        try:
            steps, several = _steps(request.body)
        except _Refused as error:
            body = {"success": False, "output": "", "error": str(error), "exitCode": None, "result": None}
            exchange.reply(400, dumps(body))
            return
        _Run(self._tools, exchange, steps, several).next()


class _Run:
    """The steps one after another; the first that fails is the last."""

    def __init__(self, tools: Tools, exchange: Exchange, steps: list[tuple[str, Any]], several: bool) -> None:
        self._tools = tools
        self._exchange = exchange
        self._steps = steps
        self._several = several
        self._replies: list[Reply] = []
        self._call: Call | None = None
        exchange.on_gone(lambda: self._call.abandon() if self._call else None)

    def next(self) -> None:
        name, parameters = self._steps[len(self._replies)]
        call = self._tools.call(name, parameters, self._done)
        if not call.finished:
            self._call = call

    def _done(self, reply: Reply) -> None:
        self._call = None
        self._replies.append(reply)
        if not reply.failed and len(self._replies) < len(self._steps):
            self.next()
            return
        self._exchange.reply(200, within(self._render))

    def _render(self, limit: int) -> bytes:
        share = limit // len(self._replies)
        rendered = [reply.render(share) for reply in self._replies]
        last = self._replies[-1]
        if self._several:
            result: Any = [
                {"tool": name, "success": not reply.failed, "result": structured, "output": text}
                for (name, _), reply, (structured, text) in zip(self._steps, self._replies, rendered, strict=False)
            ]
        else:
            result = rendered[0][0]
        exit_code = last.exit_code if last.exit_code is not None else int(last.failed)
        structured, text = rendered[-1]
        return dumps(
            {
                "success": not last.failed,
                "output": "\n".join(text for _, text in rendered[: len(rendered) - last.failed] if text)
                or structured.get("stdout", ""),
                "error": _error_of(structured, text) if last.failed else None,
                "exitCode": exit_code,
                "result": result,
            }
        )


def _error_of(structured: dict[str, Any], text: str) -> str:
    """Return why a step failed: in words where the tool has them, else its standard error."""
    for key in ("error", "endedBy", "stderr"):
        if structured.get(key):
            return str(structured[key])
    return f"exit code {structured['exitCode']}" if structured.get("exitCode") else text


def _steps(body: bytes) -> tuple[list[tuple[str, Any]], bool]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused("the body is not valid JSON") from None
    if not isinstance(given, dict):
        raise _Refused("the body must be an object: {tool, parameters} or {type: tool_use, tools, context, metadata}")
    if given.get("type") != "tool_use":
        return [_step(given, "", {})], False
    context, tools = given.get("context") or {}, given.get("tools")
    if not isinstance(context, dict) or not isinstance(given.get("metadata") or {}, dict):
        raise _Refused("context and metadata must be objects")
    if not isinstance(tools, list) or not 0 < len(tools) <= _MAX_STEPS:
        raise _Refused(f"tools must be a list of 1 to {_MAX_STEPS} tools")
    return [_step(each, f"tools[{at}].", context) for at, each in enumerate(tools)], True


def _step(given: Any, place: str, context: dict[str, Any]) -> tuple[str, Any]:
    """Read one step; a tool given by its name alone takes its parameters from the context."""
    if isinstance(given, str):
        return given, context.get(given) or {}
    if not isinstance(given, dict):
        raise _Refused(f"{place}tool: must be a name or an object with tool and parameters")
    name = given.get("tool", given.get("name"))
    if not isinstance(name, str):
        raise _Refused(f"{place}tool: must be the name of a tool")
    for key in ("parameters", "arguments", "input"):
        if key in given:
            return name, given[key]
    return name, {}
