"""Code contexts of a sandbox: interpreters that keep their state between calls."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from controller.api.common import models
from controller.api.common.command import Text, Variables, environment
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.parsing import DirectRoute
from controller.api.streams.reading import read
from controller.kinds.access.access import AccessRequest
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.context import (
    CODE_CHARACTERS,
    COMPLETED_CHARACTERS,
    NAME,
    Context,
    Execution,
    Language,
    NewContext,
)
from controller.kinds.runtime.context import State as ContextState
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service import errors
from controller.service.context.contexts import ContextStream
from controller.service.exec.relay import Relay
from controller.service.sandbox.agent import AgentTimeout
from controller.service.services import Services
from controller.version import API_VERSION

_FAILURES = models.failures(
    errors.BadRequest,
    errors.NotFound,
    errors.Conflict,
    errors.TooLarge,
    errors.TooManyRequests,
    errors.ServiceUnavailable,
    AgentTimeout,
)
_PATH = "/namespaces/{namespace}/sandboxes/{name}/contexts"
_ONE = _PATH + "/{context}"
_EVENTS = {
    "content": {
        "application/x-ndjson": {
            "schema": {"type": "string", "description": "a JSON object a line, with its `type`; the last is `done`"}
        }
    },
    "description": "the events of the execution, as they come",
}


class ContextRequest(BaseModel):
    """A new context. Without a name it gets one; without `cwd` it starts in the agent's root."""

    model_config = ConfigDict(extra="forbid")

    language: Language = "python"
    name: Annotated[str, Field(pattern=NAME)] | Literal[""] = ""
    cwd: Text = ""
    env: Variables = {}


class ContextForkRequest(BaseModel):
    """A copy of a context. `force`: also where threads, sockets or open files forbid it."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=NAME)] | Literal[""] = ""
    force: bool = False


class ExecutionRequest(BaseModel):
    """Code to run. `language` is for the default contexts; one that is named has its own."""

    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, Field(max_length=CODE_CHARACTERS)]
    language: Language = "python"
    env: Variables = {}
    timeoutSeconds: Annotated[float | None, Field(ge=0, le=1e7)] = None


class CompletionRequest(BaseModel):
    """Code that is being typed, up to the cursor."""

    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, Field(max_length=COMPLETED_CHARACTERS)]


class CompletionsShape(models.Shape):
    """Continuations of the code: each match replaces as many of its last characters as `replaced` says."""

    replaced: int
    matches: list[str]


class ContextShape(models.Shape):
    """One context. It comes from within the sandbox: the daemon has checked its form, and nothing else.

    `engine` is ipython, basic (Python's standard library alone), node or bash. `reason` says why it is not the better
    one, or why its state was lost. `memoryBytes` counts what it started, too; `processes` is their number.
    """

    name: str
    """Name, by which it is called."""
    language: Language
    """Language of its cells."""
    state: ContextState
    """State of it."""
    engine: str
    """ipython, basic, node or bash."""
    version: str
    """Version of the interpreter."""
    reason: str
    """Reason that it is not the better engine, or that its state was lost."""
    cwd: str
    """Folder that it works in."""
    forkOf: str
    """Context that it is a copy of; empty: none."""
    executions: int
    """Number of cells that ran."""
    queued: int
    """Number of cells that wait."""
    created: float
    """Time of its start (Unix seconds)."""
    memoryBytes: int
    """Memory with all that it started."""
    processes: int
    """Number of processes that it started."""


class ContextListShape(models.Shape):
    """The contexts of a sandbox; none of one that does not run."""

    apiVersion: models.Version
    kind: Literal["ContextList"]
    items: list[ContextShape]


class InterruptAnswer(models.Shape):
    """False: nothing ran."""

    interrupted: bool


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"], route_class=DirectRoute)


@routes.get(_PATH, operation_id="listSandboxContexts", responses={200: {"model": ContextListShape}, **_FAILURES})
async def list_(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """List the code contexts of a sandbox. It is not woken for that."""
    contexts = await run_in_threadpool(services.contexts.list, SANDBOX, namespace, name)
    return JSONResponse({"apiVersion": API_VERSION, "kind": "ContextList", "items": [as_json(c) for c in contexts]})


@routes.post(
    _PATH,
    operation_id="createSandboxContext",
    status_code=201,
    responses={201: {"model": ContextShape}, **_FAILURES},
)
async def create(services: UseCases, namespace: str, name: str, body: ContextRequest) -> JSONResponse:
    """Start an interpreter that keeps its state. A sandbox suspended as idle is started for it."""
    new = NewContext(body.language, body.name, body.cwd, environment(body.env))
    return _shown(await run_in_threadpool(services.contexts.create, SANDBOX, namespace, name, new), 201)


@routes.post(
    _PATH + "/execute",
    operation_id="executeInDefaultContext",
    responses={200: _EVENTS, **_FAILURES},
    response_class=Response,
)
async def execute_default(
    services: UseCases, request: Request, namespace: str, name: str, body: ExecutionRequest
) -> Response:
    """Run code in the default context of its language, which starts with the first call. See executeInContext."""
    return await _execute(services, request, namespace, name, _execution(body, ""))


@routes.get(_ONE, operation_id="getSandboxContext", responses={200: {"model": ContextShape}, **_FAILURES})
async def get(services: UseCases, namespace: str, name: str, context: str) -> JSONResponse:
    """Get one code context."""
    return _shown(await run_in_threadpool(services.contexts.get, SANDBOX, namespace, name, context))


@routes.delete(_ONE, operation_id="deleteSandboxContext", status_code=204, responses=_FAILURES, response_class=Response)
async def delete(services: UseCases, namespace: str, name: str, context: str) -> Response:
    """End a context, and all that it started."""
    await run_in_threadpool(services.contexts.delete, SANDBOX, namespace, name, context)
    return Response(status_code=204)


@routes.post(
    _ONE + "/execute",
    operation_id="executeInContext",
    responses={200: _EVENTS, **_FAILURES},
    response_class=Response,
)
async def execute(
    services: UseCases, request: Request, namespace: str, name: str, context: str, body: ExecutionRequest
) -> Response:
    """Run code in a context, after what runs there; its events stream as lines of JSON.

    Types: started, stdout, stderr, result (with `data` by MIME type, bytes in base64), error, clear, notice, ping,
    done. Disconnecting and timing out interrupt the code; the state stays, unless `done` says `stateLost`.
    """
    return await _execute(services, request, namespace, name, _execution(body, context))


@routes.post(
    _ONE + "/complete",
    operation_id="completeInContext",
    responses={200: {"model": CompletionsShape}, **_FAILURES},
)
async def complete(
    services: UseCases, namespace: str, name: str, context: str, body: CompletionRequest
) -> JSONResponse:
    """List how code may go on at its end, by the live names of an idle context. The code itself is not run."""
    use_case = partial(services.contexts.complete, SANDBOX, namespace, name, context, body.code)
    completions = await run_in_threadpool(use_case)
    return JSONResponse({"replaced": completions.replaced, "matches": list(completions.matches)})


@routes.post(
    _ONE + "/interrupt",
    operation_id="interruptContext",
    responses={200: {"model": InterruptAnswer}, **_FAILURES},
)
async def interrupt(services: UseCases, namespace: str, name: str, context: str) -> JSONResponse:
    """Interrupt what runs in a context; killed after 4 s, if it does not end. The state stays, unless it was killed."""
    ended = await run_in_threadpool(services.contexts.interrupt, SANDBOX, namespace, name, context)
    return JSONResponse({"interrupted": ended})


@routes.post(_ONE + "/restart", operation_id="restartContext", responses={200: {"model": ContextShape}, **_FAILURES})
async def restart(services: UseCases, namespace: str, name: str, context: str) -> JSONResponse:
    """Give a context a new interpreter."""
    return _shown(await run_in_threadpool(services.contexts.restart, SANDBOX, namespace, name, context))


@routes.post(
    _ONE + "/fork",
    operation_id="forkContext",
    status_code=201,
    responses={201: {"model": ContextShape}, **_FAILURES},
)
async def fork(services: UseCases, namespace: str, name: str, context: str, body: ContextForkRequest) -> JSONResponse:
    """Copy a Python context with all its state, between executions. What a copy would break is refused, in a list."""
    copy = partial(services.contexts.fork, SANDBOX, namespace, name, context, body.name, force=body.force)
    return _shown(await run_in_threadpool(copy), 201)


def as_json(context: Context) -> dict[str, Any]:
    """Return a context as the API shows it."""
    return {
        "name": context.name,
        "language": context.language,
        "state": context.state,
        "engine": context.engine,
        "version": context.version,
        "reason": context.reason,
        "cwd": context.cwd,
        "forkOf": context.fork_of,
        "executions": context.executions,
        "queued": context.queued,
        "created": context.created,
        "memoryBytes": context.memory_bytes,
        "processes": context.processes,
    }


def _shown(context: Context, status: int = 200) -> JSONResponse:
    return JSONResponse(as_json(context), status)


def _execution(body: ExecutionRequest, context: str) -> Execution:
    return Execution(body.code, context, body.language, environment(body.env), body.timeoutSeconds)


async def _execute(services: Services, request: Request, namespace: str, name: str, execution: Execution) -> Response:
    await request.body()  # `read` listens for the client's end from here on
    opened: list[ContextStream] = []

    def open_() -> ContextStream:
        opened.append(services.contexts.execute(SANDBOX, namespace, name, execution))
        return opened[0]

    def over() -> None:
        if opened:
            services.contexts.record_end(
                AccessRequest("use", SANDBOX.name, namespace, name, "contexts/execute"), opened[0]
            )

    try:
        first = await read(request, open_, _first, keep=True)
    except BaseException:
        over()
        raise
    relay = Relay(lambda: opened[0])
    return _Streamed(_lines(first, relay), relay.stop, over)


def _first(chunks: Iterator[Chunk]) -> Chunk | None:
    return next(chunks, None)


async def _lines(first: Chunk | None, relay: Relay) -> AsyncIterator[bytes]:
    """Yield the events as lines. An error once they have begun is the last line."""
    if first is None:  # the client has disconnected
        return
    yield _line(first)
    try:
        async for chunk in relay:
            yield _line(chunk)
    except errors.ServiceError as error:
        yield json.dumps({"type": "failed", "reason": error.reason, "message": str(error)}).encode() + b"\n"


def _line(chunk: Chunk) -> bytes:
    fields = chunk.data[1:] if chunk.data == b"{}" else b"," + chunk.data[1:]
    return b'{"type":"' + chunk.stream.encode() + b'"' + fields + b"\n"


class _Streamed(StreamingResponse):
    """Events that are passed on; however that ends, so does the execution."""

    def __init__(self, body: AsyncIterator[bytes], stop: Callable[[], None], over: Callable[[], None]) -> None:
        super().__init__(body, 200, {"x-content-type-options": "nosniff"}, "application/x-ndjson")
        self._stop, self._over = stop, over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As the base class."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stop()
            self._over()
