"""Detached commands, which outlive their client: start, list, read and kill."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from controller.api.common import models
from controller.api.common.command import Command, Text, Variables, environment
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.parsing import BoundedRoute
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import StreamError
from controller.service import errors
from controller.service.exec.exec_records import DetachedExec, ExecState
from controller.service.listing import serialize
from controller.version import API_VERSION

_READ = models.failures(errors.BadRequest, errors.NotFound, errors.ServiceUnavailable)
_START = models.failures(
    errors.BadRequest, errors.NotFound, errors.Conflict, errors.TooManyRequests, errors.ServiceUnavailable
)
_Id = Annotated[str, Path(max_length=64)]


class DetachRequest(BaseModel):
    """A command without stdin. Without `timeoutSeconds` the daemon's default limit applies; 0 means no limit."""

    model_config = ConfigDict(extra="forbid")

    command: Command
    env: Variables = {}
    workingDir: Text = ""
    timeoutSeconds: Annotated[float | None, Field(ge=0, le=1e7)] = None


class Exec(models.Shape):
    """State of a detached command. `Lost`: its end is unknown, and `message` says why.

    `durationSeconds` is there once it has ended, unless it was lost.
    """

    apiVersion: models.Version
    """Version of the API."""
    kind: Literal["Exec"]
    """Always Exec."""
    id: str
    """Id, by which it is asked for."""
    command: list[str]
    """Program and arguments."""
    state: ExecState
    """Running, how it ended, or Lost."""
    startedTime: str
    """Time of its start."""
    finishedTime: str | None = None
    """Time of its end; null: it runs."""
    durationSeconds: float | None = None
    """Seconds that it ran."""
    exitCode: int | None = None
    """Exit code; null: it runs, or its end is unknown."""
    message: str = ""
    """Reason why its end is unknown."""
    omittedBytes: int = 0
    """Bytes of output that were not kept."""


class ExecList(models.Shape):
    """The recorded detached commands of a sandbox, oldest first."""

    apiVersion: models.Version
    kind: Literal["ExecList"]
    items: list[Exec]


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"], route_class=BoundedRoute)
_EXECS = "/namespaces/{namespace}/sandboxes/{name}/execs"


@routes.post(_EXECS, operation_id="detachSandboxExec", status_code=201, responses={201: {"model": Exec}, **_START})
async def start(services: UseCases, namespace: str, name: str, body: DetachRequest) -> JSONResponse:
    """Start a command that runs on without its client, and answer once it has started.

    It ends at its time limit or with its sandbox, which is in use while it runs. Head and tail of its output are kept.
    It survives a restart of the daemon, but output after the restart is not kept.
    """
    starting = await run_in_threadpool(
        services.detached.start,
        SANDBOX,
        namespace,
        name,
        tuple(body.command),
        env=environment(body.env),
        working_dir=body.workingDir,
        timeout_seconds=body.timeoutSeconds,
    )
    try:
        return JSONResponse(_exec_json(await asyncio.wrap_future(starting)), status_code=201)
    except StreamError as error:
        raise errors.of_stream(error) from error


@routes.get(_EXECS, operation_id="listSandboxExecs", responses={200: {"model": ExecList}, **_READ})
def list_(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """The detached commands of a sandbox, with state and exit code."""
    items = [_exec_json(execution) for execution in services.detached.list(SANDBOX, namespace, name)]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "ExecList", "items": items})


@routes.get(_EXECS + "/{id}", operation_id="readSandboxExec", responses={200: {"model": Exec}, **_READ})
def read(services: UseCases, namespace: str, name: str, id: _Id) -> JSONResponse:  # noqa: A002 - as it is in the path
    """One detached command."""
    return JSONResponse(_exec_json(services.detached.get(SANDBOX, namespace, name, id)))


@routes.get(
    _EXECS + "/{id}/log",
    operation_id="readSandboxExecLog",
    response_class=PlainTextResponse,
    responses=_READ,
)
def log(services: UseCases, namespace: str, name: str, id: _Id) -> Response:  # noqa: A002
    """Output of both streams. Of long output the head and the tail, with a line between that counts the rest."""
    return PlainTextResponse(services.detached.log(SANDBOX, namespace, name, id))


@routes.post(_EXECS + "/{id}/kill", operation_id="killSandboxExec", responses={200: {"model": Exec}, **_READ})
def kill(services: UseCases, namespace: str, name: str, id: _Id) -> JSONResponse:  # noqa: A002
    """Kill all processes of a detached command; its log stays readable. No effect on one that has ended."""
    return JSONResponse(_exec_json(services.detached.kill(SANDBOX, namespace, name, id)))


def _exec_json(execution: DetachedExec) -> Mapping[str, object]:
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "Exec",
        "id": execution.id,
        "command": list(execution.command),
        "state": execution.state,
        "startedTime": serialize.timestamp(execution.started_at),
    }
    if execution.finished_at:
        document["finishedTime"] = serialize.timestamp(execution.finished_at)
        if execution.state not in ("Lost", "NotStarted"):
            document["durationSeconds"] = round(max(0.0, execution.finished_at - execution.started_at), 3)
    if execution.exit_code is not None:
        document["exitCode"] = execution.exit_code
    return {**document, "message": execution.message, "omittedBytes": execution.omitted_bytes}
