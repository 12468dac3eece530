"""GET logs: a sandbox's log as a stream of plain text."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.streams.output import OutputResponse
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import StreamError
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable
from controller.service.exec.relay import Relay
from controller.service.exec.streams import Opener

# An engine refuses a log at once. A silent sandbox must not delay the response's headers.
_FIRST_CHUNK_SECONDS = 0.25
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
    """Both streams of the log in order, as plain text.

    `previous`: the log of the last ended run. If its container was replaced, only its last lines are kept, and the
    header Warning says so. `egress`: a line for each connection that the sandbox's proxy allowed or refused.
    """
    since_time = None if since is None else services.objects.now() - since
    if egress:
        if follow or previous or timestamps:
            raise BadRequest("`egress` takes only `tailLines` and `sinceSeconds`; its lines have timestamps")
        read_egress = partial(services.egress_logs.log, tail=tail, since=since_time)
        return await _answer(await run_in_threadpool(read_egress, SANDBOX, namespace, name))
    if previous:
        if follow:
            raise BadRequest("a previous run has ended and can't be followed; omit `follow` or `previous`")
        read = partial(services.previous.log, tail=tail, since=since_time, timestamps=timestamps)
        previous_log = await run_in_threadpool(read, SANDBOX, namespace, name)
        return await _answer(previous_log.open, _warning(previous_log.note))
    open_log = await run_in_threadpool(
        services.sandbox_streams.logs,
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
    relay = Relay(open_log)
    failure = await relay.failure_within(_FIRST_CHUNK_SECONDS)
    if failure is not None:
        relay.stop()
        raise ServiceUnavailable(str(failure)) if isinstance(failure, StreamError) else failure
    return OutputResponse(relay, headers)


def _warning(note: str) -> dict[str, str]:
    """Return a Warning header, as in Kubernetes."""
    return {"Warning": f"299 - {json.dumps(note)}"} if note else {}
