"""Commands: POST exec answers with the whole result, a WebSocket on the same path streams it."""

import base64
import binascii
import time
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from controller.api.common import errors as status_bodies
from controller.api.common import models
from controller.api.common.command import Command, Text, Variables, environment
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.parsing import DirectRoute
from controller.api.common.query_names import takes_query
from controller.api.server.peer_credentials import CONNECTION
from controller.api.server.stalled_clients import ClientTransport
from controller.api.streams.exec_websocket import EXEC_NAMES, ExecQuery, serve
from controller.api.streams.reading import read
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import StreamError
from controller.service import errors
from controller.service.exec.activity import TrackedStream
from controller.service.exec.collected_output import ENDED_EARLY, Collected, Collector
from controller.service.exec.relay import Relay
from controller.version import API_VERSION

_ANSWERS = models.failures(
    errors.BadRequest, errors.NotFound, errors.Conflict, errors.TooManyRequests, errors.ServiceUnavailable
)
_Encoding = Literal["utf-8", "base64"]


class ExecRequest(BaseModel):
    """A command. `encoding` applies to `stdin`, and to `stdout` and `stderr` of the result.

    Without `timeoutSeconds` the daemon's default limit applies; 0 means no limit.
    """

    model_config = ConfigDict(extra="forbid")

    command: Command
    env: Variables = {}
    workingDir: Text = ""
    stdin: str = ""
    encoding: _Encoding = "utf-8"
    timeoutSeconds: Annotated[float | None, Field(ge=0, le=1e7)] = None


class ExecResult(models.Shape):
    """Result of a command. Of long output the head and the tail are kept, with a line between that counts the rest.

    With the encoding `utf-8`, invalid bytes are replaced; `base64` keeps every byte.
    """

    apiVersion: models.Version
    """Version of the API."""
    kind: Literal["ExecResult"]
    """Always ExecResult."""
    stdout: str
    """Standard output, in `encoding`."""
    stderr: str
    """Standard error, likewise."""
    encoding: _Encoding
    """utf-8 or base64."""
    exitCode: int
    """Exit code."""
    durationSeconds: float
    """Seconds that it ran."""
    truncated: bool
    """True: a part of the output was left out."""
    timedOut: bool
    """True: its time was over, and it was killed."""
    stdoutOmittedBytes: int
    """Bytes left out of standard output."""
    stderrOmittedBytes: int
    """Bytes left out of standard error."""


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"], route_class=DirectRoute)
_PATH = "/namespaces/{namespace}/sandboxes/{name}/exec"


@routes.post(
    _PATH,
    operation_id="execSandbox",
    responses={200: {"model": ExecResult}, **_ANSWERS},
)
async def exec_(services: UseCases, request: Request, namespace: str, name: str, body: ExecRequest) -> JSONResponse:
    """Run a command to its end and return its output. Disconnecting or timing out kills the command.

    To stream output and input, open the same path as a WebSocket, with the frames of
    Kubernetes' v5.channel.k8s.io. Its query: `command` (once an argument), `stdin`, `tty`, `env` (NAME=VALUE),
    `secret` (NAME=SECRET), `workingDir`, `timeoutSeconds`. The first byte of a binary frame is its channel: 0
    stdin, 1 stdout, 2 stderr, 3 the final Status, 4 `{"Width", "Height"}` of the terminal, 5 `{"signal"}`; 255
    and 0 close stdin.
    """
    stdin = _stdin(body)
    started_at = time.monotonic()

    def open_() -> TrackedStream:
        request.state.record()
        return services.sandbox_streams.exec(
            SANDBOX,
            namespace,
            name,
            tuple(body.command),
            env=environment(body.env),
            working_dir=body.workingDir,
            stdin=(stdin,) if stdin else None,
            timeout_seconds=body.timeoutSeconds,
        )()

    collector = Collector(services.sandbox_streams.rules.output_bytes)
    try:
        done = await read(request, open_, collector.collect)
    except StreamError as error:
        raise errors.of_stream(error) from error
    if done is None:
        raise errors.ServiceUnavailable(ENDED_EARLY)
    return JSONResponse(_result_json(done, body.encoding, time.monotonic() - started_at))


@routes.websocket(_PATH)
@takes_query(*EXEC_NAMES)
async def exec_websocket(services: UseCases, websocket: WebSocket, namespace: str, name: str) -> None:
    """Run a command.

    Query: command (once an argument), stdin, tty, rows, columns, env (NAME=VALUE), workingDir, timeoutSeconds.
    Without timeoutSeconds the daemon's default limit applies, except for a terminal; 0 means no limit.
    """
    try:
        request = ExecQuery.of(websocket)
        feed = request.feed()
        open_exec = await run_in_threadpool(
            services.sandbox_streams.exec,
            SANDBOX,
            namespace,
            name,
            request.command,
            env=request.env,
            working_dir=request.working_dir,
            stdin=feed,
            timeout_seconds=request.timeout_seconds,
            tty=request.tty,
            size=request.size,
        )
    except errors.ServiceError as error:
        await websocket.send_denial_response(status_bodies.answer(error))
        return
    link: ClientTransport | None = websocket.scope["state"].get(CONNECTION)
    if link is not None:
        link.pause_seconds = services.sandbox_streams.rules.pause_seconds
    await serve(websocket, Relay(open_exec), feed)


def _stdin(body: ExecRequest) -> bytes:
    try:
        return body.stdin.encode() if body.encoding == "utf-8" else base64.b64decode(body.stdin, validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.BadRequest(f"stdin: not valid {body.encoding}: {error}; set `encoding` to match") from error


def _result_json(done: Collected, encoding: _Encoding, seconds: float) -> Mapping[str, object]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode() if encoding == "base64" else data.decode(errors="replace")

    return {
        "apiVersion": API_VERSION,
        "kind": "ExecResult",
        "stdout": text(done.stdout),
        "stderr": text(done.stderr),
        "encoding": encoding,
        "exitCode": done.exit_code,
        "durationSeconds": round(seconds, 6),
        "truncated": bool(done.stdout_omitted_bytes or done.stderr_omitted_bytes),
        "timedOut": done.timed_out,
        "stdoutOmittedBytes": done.stdout_omitted_bytes,
        "stderrOmittedBytes": done.stderr_omitted_bytes,
    }
