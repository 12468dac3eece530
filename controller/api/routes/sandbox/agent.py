"""The agent in a sandbox: MCP as it is, and its tools without JSON-RPC."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from controller.api.common import models
from controller.api.common.byte_budget import HeldBytes
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.parsing import DirectRoute
from controller.api.streams.reading import read
from controller.kinds.access.access import AccessRequest
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.agent_call import RESULT_BYTES, AgentRequest, ToolResult
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service import errors
from controller.service.exec.relay import Relay
from controller.service.sandbox.agent import BODY, EVENTS, AgentStream, AgentTimeout
from controller.service.services import Services

_FAILURES = models.failures(
    errors.BadRequest,
    errors.NotFound,
    errors.Conflict,
    errors.TooLarge,
    errors.TooManyRequests,
    errors.ServiceUnavailable,
    AgentTimeout,
)
_PATH = "/namespaces/{namespace}/sandboxes/{name}/mcp"
_SENT_DOWN = (
    *("accept", "content-type", "last-event-id"),
    *("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"),
)
_PARSE_ERROR = -32700
_MESSAGE = {"type": "object", "description": "a JSON-RPC message of MCP"}
_ANSWER = {
    "application/json": {"schema": _MESSAGE},
    "text/event-stream": {"schema": {"type": "string", "description": "events, each with a message"}},
}
_BAD_MESSAGE: dict[str, Any] = {
    "description": "a Status, or a JSON-RPC error where the body is no message",
    "content": {
        "application/json": {
            "schema": {"anyOf": [{"$ref": "#/components/schemas/Status"}, {**_MESSAGE, "required": ["jsonrpc"]}]},
        }
    },
}
_Arguments = Annotated[dict[str, Any], Field(description="arguments of the tool, by name")]


class ToolStep(BaseModel):
    """One tool and its parameters. `name` may stand for `tool`; `arguments` or `input` for `parameters`."""

    model_config = ConfigDict(extra="allow")

    tool: str | None = None
    parameters: _Arguments = {}


class ExecuteRequest(ToolStep):
    """One tool with its parameters; or, with the type `tool_use`, up to 32 tools, run until one fails.

    A tool of the list that is only named takes its parameters from the context, by its name.
    """

    type: Annotated[str, Field(description="`tool_use` for a list of tools")] = ""
    tools: Annotated[list[str | ToolStep], Field(max_length=32)] = []
    context: dict[str, Any] = {}
    metadata: dict[str, Any] = {}


class ToolAnswer(models.Shape):
    """Result of the last tool that ran. `result` is the tool's own, or a list of one for each tool.

    It comes from within the sandbox: the daemon has checked its form, and nothing else.
    """

    success: bool
    output: str
    error: str | None
    exitCode: int | None
    result: Any


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"], route_class=DirectRoute)


@routes.post(
    _PATH + "/execute",
    operation_id="executeSandboxTool",
    responses={200: {"model": ToolAnswer}, **_FAILURES},
)
async def execute(services: UseCases, request: Request, namespace: str, name: str, body: ExecuteRequest) -> Response:
    """Call a tool of the sandbox's agent, such as `exec`, `file.read` or `git`. Disconnecting cancels it.

    A sandbox suspended as idle is started for it. Time limits are those of commands.
    """
    if body.tool is None and not body.tools and not (body.model_extra or {}).get("name"):
        raise errors.BadRequest("tool: missing; send {tool, parameters}, or {type: tool_use, tools: [...]}")
    tool_call = await request.json()
    opened: list[AgentStream] = []

    def open_() -> AgentStream:
        request.state.record()
        opened.append(services.agent.execute(SANDBOX, namespace, name, tool_call))
        return opened[0]

    def collect(chunks: Iterator[Chunk]) -> ToolResult:
        pieces, size = list[bytes](), 0
        for chunk in chunks:
            if chunk.stream == BODY and size <= RESULT_BYTES:
                _hold(request, chunk)
                pieces.append(chunk.data)
                size += len(chunk.data)
        return services.agent.result(opened[0], f"sandbox `{name}`", b"".join(pieces))

    try:
        tool_result = await read(request, open_, collect)
    finally:
        _record_end(services, opened, namespace, name, "mcp/execute")
    answer = {
        "success": tool_result.success,
        "output": tool_result.output,
        "error": tool_result.error,
        "exitCode": tool_result.exit_code,
    }
    data = json.dumps({**answer, "result": tool_result.result}, ensure_ascii=False, separators=(",", ":"))
    return Response(data.encode("utf-8", "replace"), media_type="application/json")


def _describe(summary: str) -> dict[str, Any]:
    answers = {200: {"content": _ANSWER, "description": "the agent's answer"}, 202: {"description": "taken"}}
    return {"responses": {**answers, **_FAILURES, 400: _BAD_MESSAGE}, "response_class": Response, "summary": summary}


@routes.post(
    _PATH,
    operation_id="callSandboxMcp",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _MESSAGE}}}},
    **_describe("Send a message of MCP"),
)
async def call(services: UseCases, request: Request, namespace: str, name: str) -> Response:
    """Send a message of MCP to the sandbox's agent: of 2026-07-28, or of the versions with a handshake.

    The message and the answer pass unchanged, event streams too. Disconnecting cancels what was called.
    """
    return await _passed_on(services, request, namespace, name)


@routes.get(_PATH, operation_id="listenSandboxMcp", **_describe("Listen to the agent of a sandbox"))
async def listen(services: UseCases, request: Request, namespace: str, name: str) -> Response:
    """Open the event stream of an MCP session (versions with a handshake)."""
    return await _passed_on(services, request, namespace, name)


@routes.delete(_PATH, operation_id="endSandboxMcp", **_describe("End a session of MCP"))
async def end(services: UseCases, request: Request, namespace: str, name: str) -> Response:
    """End an MCP session (versions with a handshake)."""
    return await _passed_on(services, request, namespace, name)


async def _passed_on(services: Services, request: Request, namespace: str, name: str) -> Response:
    """Return the answer of the sandbox's agent to an MCP request, and record its end."""
    data, message = await request.body(), None
    if data:
        try:
            message = await request.json()
        except ValueError as error:  # never passed on: the agent might read in it what the audit could not
            return JSONResponse(_unreadable(error), 400)
    headers = {
        header_name: value for header_name in _SENT_DOWN if (value := request.headers.get(header_name)) is not None
    }
    agent_request = AgentRequest(request.method, "/mcp", headers, data)
    opened: list[AgentStream] = []

    def open_() -> AgentStream:
        request.state.record()
        opened.append(services.agent.mcp(SANDBOX, namespace, name, agent_request, message))
        return opened[0]

    over = partial(_record_end, services, opened, namespace, name, "mcp")
    try:
        head, body = await read(request, open_, partial(_read_head, request), keep=True)
    except BaseException:
        over()
        raise
    answered = {**_plain(head["headers"]), "x-content-type-options": "nosniff"}
    if body is not None:
        over()
        return Response(body, head["status"], answered)
    relay = Relay(lambda: opened[0])
    return _Passed((chunk.data async for chunk in relay), head["status"], answered, relay.stop, over)


def _unreadable(error: ValueError) -> Mapping[str, Any]:
    """Return JSON-RPC's answer to a message that is not JSON."""
    return {"jsonrpc": "2.0", "id": None, "error": {"code": _PARSE_ERROR, "message": f"Parse error: {error}"}}


def _read_head(request: Request, chunks: Iterator[Chunk]) -> tuple[Mapping[str, Any], bytes | None]:
    """Read the head of an answer, and its body, None for an event stream."""
    first = next(chunks, None)
    if first is None:  # the client has disconnected
        return {"status": 499, "headers": {}}, b""
    head: dict[str, Any] = json.loads(first.data)
    if head["headers"].get("content-type", "").lower().startswith(EVENTS):
        return head, None
    pieces = list[bytes]()
    for chunk in chunks:
        _hold(request, chunk)
        pieces.append(chunk.data)
    return head, b"".join(pieces)


def _hold(request: Request, chunk: Chunk) -> None:
    """Count a piece of an answer in memory. Raises ServiceUnavailable when there are too many, of all callers."""
    held_bytes: HeldBytes = request.state.held
    if not held_bytes.take(len(chunk.data)):
        raise errors.ServiceUnavailable(
            "too many large answers are in flight: this one was dropped, though its call was done; ask for less at once"
        )


class _Passed(StreamingResponse):
    """An answer that is passed on; however it ends, so does the call."""

    def __init__(
        self,
        body: AsyncIterator[bytes],
        status: int,
        headers: Mapping[str, str],
        stop: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        super().__init__(body, status, headers)
        self._stop, self._over = stop, over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As the base class."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stop()
            self._over()


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers without what could not be sent, or would begin another line."""
    return {name: value for name, value in headers.items() if value.isprintable() and value.isascii()}


def _record_end(services: Services, opened: Sequence[AgentStream], namespace: str, name: str, sub: str) -> None:
    """Record the end of a call."""
    if opened:
        services.agent.record_end(AccessRequest("use", SANDBOX.name, namespace, name, sub), opened[0])
