"""Snapshots of sandboxes: forks, rollbacks, and snapshots as archives."""

import asyncio
import queue
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.service import errors
from controller.service.listing import serialize
from controller.service.sandbox.snapshots import COUNT_MAX
from controller.version import API_VERSION

_FAILURES = models.failures(
    *(errors.BadRequest, errors.Forbidden, errors.NotFound, errors.Conflict, errors.Invalid, errors.TooLarge),
    *(errors.TooManyRequests, errors.ServiceUnavailable, errors.NoSpace),
)
_TAR = "application/x-tar"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_Name = Annotated[str, Field(max_length=52, pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$")]
_SANDBOX = "/namespaces/{namespace}/sandboxes/{name}"
_SNAPSHOT = "/namespaces/{namespace}/sandboxsnapshots/{name}"
_PIECES = 4
_STALL_SECONDS, _POLL_SECONDS = 60.0, 0.005


class ForkRequest(BaseModel):
    """New sandboxes that begin as this one is now, or as a snapshot of it has it."""

    model_config = ConfigDict(extra="forbid")

    count: Annotated[int, Field(ge=1, le=COUNT_MAX, description="number of new sandboxes")] = 1
    namePrefix: Annotated[_Name, Field(description="beginning of their names; default: the sandbox's name")] = ""
    snapshot: Annotated[_Name, Field(description="snapshot to begin from; default: one that is taken now")] = ""
    allowPartial: Annotated[bool, Field(description="create as many as the quotas have room for")] = False


class RollbackRequest(BaseModel):
    """Files that the sandbox is to have again. It gets a new container; what was written since is lost."""

    model_config = ConfigDict(extra="forbid")

    snapshot: Annotated[_Name, Field(min_length=1, description="snapshot to return to")]
    backup: Annotated[bool, Field(description="take a snapshot of the present files first")] = True


class ForkList(models.Shape):
    """The new sandboxes, the snapshot that they begin from, and why there are no more of them."""

    apiVersion: models.Version
    kind: Literal["ForkList"]
    snapshot: str
    items: list[dict[str, Any]]
    reasons: list[str]


class RollbackResult(models.Shape):
    """The sandbox as it is to be, and the name of the snapshot of what it was ("": none was taken)."""

    apiVersion: models.Version
    kind: Literal["Rollback"]
    backup: str
    sandbox: dict[str, Any]


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])
archives = APIRouter(prefix=PREFIX, tags=["SandboxSnapshot"])


@routes.post(f"{_SANDBOX}/fork", operation_id="forkSandbox", responses={200: {"model": ForkList}, **_FAILURES})
def fork(services: UseCases, request: Request, namespace: str, name: str, body: ForkRequest) -> JSONResponse:
    """Create sandboxes with the files that this one has now: all of them, or none."""
    forks = services.snapshots.fork(
        namespace,
        name,
        count=body.count,
        prefix=body.namePrefix,
        snapshot=body.snapshot,
        partial=body.allowPartial,
        written_by=request.headers.get("user-agent", ""),
    )
    return JSONResponse(
        {
            "apiVersion": API_VERSION,
            "kind": "ForkList",
            "snapshot": forks.snapshot.name,
            "items": [serialize.obj(each) for each in forks.sandboxes],
            "reasons": list(forks.reasons),
        }
    )


@routes.post(
    f"{_SANDBOX}/rollback",
    operation_id="rollbackSandbox",
    responses={200: {"model": RollbackResult}, **_FAILURES},
)
def rollback(services: UseCases, request: Request, namespace: str, name: str, body: RollbackRequest) -> JSONResponse:
    """Give the sandbox the files of a snapshot again, after a snapshot of its present ones."""
    result = services.snapshots.rollback(
        namespace, name, body.snapshot, backup=body.backup, written_by=request.headers.get("user-agent", "")
    )
    return JSONResponse(
        {
            "apiVersion": API_VERSION,
            "kind": "Rollback",
            "backup": result.backup.name if result.backup else "",
            "sandbox": serialize.obj(result.sandbox),
        }
    )


@archives.get(
    f"{_SNAPSHOT}/archive",
    operation_id="readSandboxSnapshotArchive",
    response_class=StreamingResponse,
    responses={200: {"content": {_TAR: _BINARY}, "description": "the archive"}, **_FAILURES},
)
def export(
    services: UseCases,
    namespace: str,
    name: str,
    image: Annotated[bool, Query(description="with the sandbox's image")] = False,
) -> StreamingResponse:
    """A snapshot as one archive: a tar with an OCI layout, for another host."""
    return StreamingResponse(services.snapshots.export(namespace, name, image=image), media_type=_TAR)


@archives.put(
    f"{_SNAPSHOT}/archive",
    operation_id="writeSandboxSnapshotArchive",
    openapi_extra={"requestBody": {"required": True, "content": {_TAR: _BINARY}}},
    responses={
        200: {
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SandboxSnapshot"}}},
            "description": "the snapshot",
        },
        **_FAILURES,
    },
)
async def take_in(services: UseCases, request: Request, namespace: str, name: str) -> JSONResponse:
    """Create a snapshot from an exported archive. One that is damaged, hostile or of another machine is refused."""
    pieces = _Pieces()
    agent = request.headers.get("user-agent", "")
    task = asyncio.ensure_future(
        run_in_threadpool(services.snapshots.take_in, namespace, name, pieces, written_by=agent)
    )
    try:
        async with asyncio.timeout(_STALL_SECONDS) as stall:
            async for piece in request.stream():
                stall.reschedule(asyncio.get_running_loop().time() + _STALL_SECONDS)
                while piece and not task.done() and not pieces.offer(piece):
                    await asyncio.sleep(_POLL_SECONDS)
                if task.done():
                    break
        pieces.end()
    except (ClientDisconnect, TimeoutError):
        pieces.fail()
        await asyncio.wait([task])
        raise errors.BadRequest("the client disconnected, or sent nothing for too long") from None
    except BaseException:  # as the daemon stops: the thread must not wait for more
        pieces.fail()
        raise
    return JSONResponse(serialize.obj(await task))


class _Pieces(Iterator[bytes]):
    """Pieces of a request's body, on their way to a thread."""

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes] = queue.Queue(_PIECES)
        self._failed = self._ended = False

    def offer(self, piece: bytes) -> bool:
        """Add a piece; False while there is no room."""
        try:
            self._queue.put_nowait(piece)
        except queue.Full:
            return False
        return True

    def end(self) -> None:
        """End the body."""
        self._ended = True

    def fail(self) -> None:
        """End the body in its middle."""
        self._failed = True
        self.end()

    def __next__(self) -> bytes:
        while True:
            try:
                return self._queue.get(timeout=_POLL_SECONDS * 10)
            except queue.Empty:
                if self._failed:
                    raise errors.BadRequest("the transfer broke off") from None
                if self._ended:
                    raise StopIteration from None
                continue
