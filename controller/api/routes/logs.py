"""GET logs: a sandbox's log as a stream of plain text."""

import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.streams.relay import Pump
from controller.kinds.common.chunk import Chunk
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import StreamError
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable
from controller.service.sandbox.streams import Opener

# An engine that refuses a log says so at once; a box that is silent must not keep its reader waiting for headers.
_FIRST_WORDS_SECONDS = 0.25
_log = structlog.get_logger("paddock.api")
_LOG_FAILURES = models.failures(BadRequest, NotFound, Conflict, ServiceUnavailable)


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/logs",
    operation_id="readSandboxLogs",
    response_class=PlainTextResponse,
    responses=_LOG_FAILURES,
)
async def logs(
    services: UseCases,
    namespace: str,
    name: str,
    follow: bool = False,
    tail: Annotated[int | None, Query(alias="tailLines", ge=0, le=1_000_000)] = None,
    since: Annotated[float | None, Query(alias="sinceSeconds", ge=0, le=1e9)] = None,
    timestamps: bool = False,
    previous: bool = False,
    egress: bool = False,
) -> Response:
    """Both streams of the log, in the order in which they were written, as plain text.

    `previous`: of the run that ended last. Where its container was replaced, the last lines that were kept of it;
    the header Warning says so. `egress`: instead, what its proxy let through and refused, a line each.
    """
    since_time = None if since is None else services.objects.now() - since
    if egress:
        if follow or previous or timestamps:
            raise BadRequest("`egress` takes `tailLines` and `sinceSeconds` alone; its lines bear their times")
        read_egress = partial(services.egress_logs.log, tail=tail, since=since_time)
        return await _answer(await run_in_threadpool(read_egress, SANDBOX, namespace, name))
    if previous:
        if follow:
            raise BadRequest("a previous run has ended: it can't be followed; leave out `follow` or `previous`")
        read = partial(services.previous.log, tail=tail, since=since_time, timestamps=timestamps)
        found = await run_in_threadpool(read, SANDBOX, namespace, name)
        return await _answer(found.open, _warning(found.note))
    open_log = await run_in_threadpool(
        services.into_box.logs,
        SANDBOX,
        namespace,
        name,
        follow=follow,
        tail=tail,
        since=since_time,
        timestamps=timestamps,
    )
    return await _answer(open_log)


async def _answer(open_log: Opener, headers: Mapping[str, str] | None = None) -> Response:
    pump = Pump(open_log)
    failure = await pump.failure_within(_FIRST_WORDS_SECONDS)
    if failure is not None:
        pump.stop()
        raise ServiceUnavailable(str(failure)) if isinstance(failure, StreamError) else failure
    return _LogResponse(pump, headers)


def _warning(note: str) -> dict[str, str]:
    """As Kubernetes' API server warns its clients."""
    return {"Warning": f"299 - {json.dumps(note)}"} if note else {}


class _LogResponse(StreamingResponse):
    """The output of a stream as text; the stream is let go of when the client is gone, whatever it waited for."""

    def __init__(self, pump: Pump, headers: Mapping[str, str] | None) -> None:
        super().__init__(_text(pump), media_type="text/plain; charset=utf-8", headers=headers)
        self._pump = pump

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pump.stop()

    async def stream_response(self, send: Send) -> None:
        """What breaks off later than the first words is left unfinished: that is how the client learns of it."""
        try:
            await super().stream_response(send)
        except StreamError as error:
            _log.info("a log broke off", error=str(error))


async def _text(pump: Pump) -> AsyncIterator[bytes]:
    async for chunk in pump:
        if _is_output(chunk):
            yield chunk.data


def _is_output(chunk: Chunk) -> bool:
    return chunk.stream in ("stdout", "stderr")
