"""Images: GET lists those of all hosts; pulls, builds and pushes answer with lines of JSON until they end.

These are done on the host that the query names, else on the one that is asked.
"""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.fleet import hosted
from controller.api.fleet.collect import Missing, collect, unreadable
from controller.api.streams.output import OutputResponse
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.images import HostImage, ImageProgress
from controller.service import errors
from controller.service.exec.relay import Relay
from controller.service.images.context import too_large
from controller.service.images.images import BuildRequest, ImageTask
from controller.service.listing import serialize
from controller.version import API_VERSION

_STALL_SECONDS = 30.0
_LINES = "application/x-ndjson"
_LIST = "ImageList"


class Image(models.Shape):
    """One image on a host. `createdTime` is RFC 3339 in UTC; `host` is left out where there is one.

    `volumes` are its VOLUMEs; lists leave them out.
    """

    id: str
    names: list[str]
    digests: list[str]
    sizeBytes: int
    createdTime: str
    host: str | None = None
    volumes: list[str] | None = None


class ImageList(models.Shape):
    """The images that the caller may use, by name. Those of hosts that are `missing` are not in it.

    The field is left out where there is one host.
    """

    apiVersion: models.Version
    kind: str
    items: list[Image]
    missing: list[models.MissingHost] | None = None


class ImageStep(models.Shape):
    """One line of a pull, build or push. The last one has `image` (the result) or `error` (a Status)."""

    text: str = ""
    layer: str = ""
    currentBytes: int = 0
    totalBytes: int = 0
    image: Image | None = None
    error: models.Status | None = Field(default=None)


class PullInProgress(models.Shape):
    """A pull that sandboxes wait for. Bytes are of the layers whose size is known yet."""

    image: str
    currentBytes: int
    totalBytes: int


class PullList(models.Shape):
    """The pulls in progress, by image."""

    apiVersion: models.Version
    kind: str
    items: list[PullInProgress]


class ImageDeletion(models.Shape):
    """The name that was deleted, and with its last name the image."""

    apiVersion: models.Version
    kind: str
    image: str


def _answers(*failures: type[errors.ServiceError]) -> dict[int | str, dict[str, Any]]:
    lines = {"content": {_LINES: {"schema": {"type": "string"}}}, "description": "an ImageStep on each line"}
    return {200: lines, **models.failures(*failures, errors.TooManyRequests, errors.ServiceUnavailable)}


routes = APIRouter(prefix=PREFIX, tags=["images"])
ImageQuery = Annotated[str, Query(min_length=1, max_length=512, description="the image's name, with its tag or digest")]
HostQuery = Annotated[str, Query(max_length=63, description="the host that does it; default: the one that is asked")]


@routes.get(
    "/images",
    operation_id="listImages",
    responses={200: {"model": ImageList}, **models.failures(errors.ServiceUnavailable)},
)
def list_(request: Request, services: UseCases) -> JSONResponse:
    """The images of all hosts that the caller may use."""
    head = {"apiVersion": API_VERSION, "kind": _LIST}
    collected = collect(request)
    if collected is None:
        return JSONResponse({**head, "items": [_image_json(image) for image in services.images.list()]})
    own_host = hosted.own_host(request.app.state.forwarding)
    items: list[dict[str, Any]] = []
    missing = list(collected.missing)
    try:
        items += [{**_image_json(image), "host": own_host} for image in services.images.list()] if own_host else ()
    except errors.ServiceUnavailable as error:
        missing.append(Missing(own_host, str(error)))
    for host, answer in collected.answers.items():
        other_images = answer.get("items") if answer.get("kind") == _LIST else None
        try:
            items += [{**image, "host": host, "names": list(map(str, image["names"]))} for image in other_images or ()]
        except (KeyError, TypeError):
            other_images = None
        if other_images is None:
            missing.append(unreadable(host))
    items.sort(key=lambda entry: (entry["names"], entry["host"]))
    return JSONResponse({**head, "items": items, "missing": hosted.missing_as_json(missing)})


@routes.get(
    "/images/inspect",
    operation_id="inspectImage",
    responses={200: {"model": Image}, **models.failures(errors.NotFound, errors.ServiceUnavailable)},
)
def inspect(request: Request, services: UseCases, image: ImageQuery, host: HostQuery = "") -> JSONResponse:
    """One image by its name, with its VOLUMEs: of the host that the query names, else of the first that has it."""
    hosted.to_host(request, host, f"image `{image}`")
    try:
        return JSONResponse(_inspected_json(services.images.get(image)))
    except errors.NotFound:
        collected = collect(request) if not host else None
        for other_host, answer in collected.answers.items() if collected is not None else ():
            if "volumes" in answer:
                return JSONResponse({**answer, "host": other_host})
        raise


@routes.get("/images/pulling", operation_id="listImagePulls", responses={200: {"model": PullList}})
def pulling(services: UseCases) -> JSONResponse:
    """The pulls in progress that sandboxes wait for, of images that the caller may use."""
    items = [
        {"image": image_pull.image, "currentBytes": image_pull.current_bytes, "totalBytes": image_pull.total_bytes}
        for image_pull in services.images.pulling()
    ]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "PullList", "items": items})


@routes.post(
    "/images/pull",
    operation_id="pullImage",
    response_class=Response,
    responses=_answers(errors.Invalid, errors.Forbidden),
)
async def pull(request: Request, services: UseCases, image: ImageQuery, host: HostQuery = "") -> Response:
    """Pull an image that the operator's patterns allow. Disconnecting ends it."""
    await run_in_threadpool(hosted.work_on, request, host, f"image `{image}`")
    return _stream(await run_in_threadpool(services.images.pull, image))


@routes.post(
    "/images/push",
    operation_id="pushImage",
    response_class=Response,
    responses=_answers(errors.Invalid, errors.Forbidden),
)
async def push(request: Request, services: UseCases, image: ImageQuery, host: HostQuery = "") -> Response:
    """Push an image to a registry that the operator lists. Disconnecting ends it."""
    await run_in_threadpool(hosted.work_on, request, host, f"image `{image}`")
    return _stream(await run_in_threadpool(services.images.push, image))


@routes.post(
    "/images/build",
    operation_id="buildImage",
    response_class=Response,
    responses=_answers(errors.BadRequest, errors.Invalid, errors.Forbidden, errors.TooLarge),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def build(
    services: UseCases,
    request: Request,
    tag: Annotated[str, Query(min_length=1, max_length=512, description="name and tag of the image")],
    dockerfile: Annotated[
        str, Query(min_length=1, max_length=4096, description="path of the Dockerfile in the context")
    ] = "Dockerfile",
    arg: Annotated[list[str], Query(max_length=100, description="a build argument, NAME=VALUE")] = [],  # noqa: B006
    host: HostQuery = "",
) -> Response:
    """Build an image. The body is a tar archive, the context. Disconnecting ends the build."""
    await run_in_threadpool(hosted.work_on, request, host, f"image `{tag}`")
    context = await _receive_body(request, services.images.context_bytes)
    pairs = [argument.partition("=") for argument in arg]
    if not all(name and equals for name, equals, _ in pairs):
        raise errors.BadRequest("arg: write each build argument as NAME=VALUE")
    build_request = BuildRequest(tag, context, path=dockerfile, arguments={name: value for name, _, value in pairs})
    return _stream(await run_in_threadpool(services.images.build, build_request))


@routes.post(
    "/images/delete",
    operation_id="deleteImage",
    responses={
        200: {"model": ImageDeletion},
        **models.failures(
            errors.Invalid, errors.Forbidden, errors.NotFound, errors.Conflict, errors.ServiceUnavailable
        ),
    },
)
def delete(request: Request, services: UseCases, image: ImageQuery, host: HostQuery = "") -> JSONResponse:
    """Delete an image by one of its names; one that a container uses stays."""
    hosted.work_on(request, host, f"image `{image}`")
    services.images.delete(image)
    return JSONResponse({"apiVersion": API_VERSION, "kind": "ImageDeletion", "image": image})


async def _receive_body(request: Request, limit_bytes: int) -> bytes:
    """Return the body. Raises TooLarge, and BadRequest if the client sends nothing for too long."""
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise too_large(limit_bytes)
    parts = list[bytes]()
    size = 0
    stream = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(_STALL_SECONDS):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return b"".join(parts)
        except TimeoutError as error:
            raise errors.BadRequest(f"the context stopped for {_STALL_SECONDS:g} s; send it again") from error
        size += len(chunk)
        if size > limit_bytes:
            raise too_large(limit_bytes)
        parts.append(chunk)


def _stream(task: ImageTask) -> Response:
    return OutputResponse(Relay(partial(_Lines, task)), None, _LINES)


class _Lines(Iterator[Chunk]):
    """The progress of a task as lines of JSON. The last line has the result, or the error."""

    def __init__(self, task: ImageTask) -> None:
        self._task, self._over = task, False

    def __next__(self) -> Chunk:
        if self._over:
            raise StopIteration
        try:
            return _line(_step(next(self._task)))
        except StopIteration:
            self._over = True
            return _line({"image": _inspected_json(self._task.image) if self._task.image else None})
        except errors.ServiceError as error:
            self._over = True
            return _line({"error": serialize.failure(error)})

    def close(self) -> None:
        """End the work, from any thread."""
        self._task.close()


def _line(value: dict[str, Any]) -> Chunk:
    return Chunk("stdout", json.dumps(value).encode() + b"\n")


def _step(step: ImageProgress) -> dict[str, Any]:
    fields = {
        "text": step.text,
        "layer": step.layer,
        "currentBytes": step.current_bytes,
        "totalBytes": step.total_bytes,
    }
    return {name: value for name, value in fields.items() if value}


def _inspected_json(image: HostImage) -> dict[str, Any]:
    return {**_image_json(image), "volumes": list(image.volumes)}


def _image_json(image: HostImage) -> dict[str, Any]:
    return {
        "id": image.id,
        "names": list(image.names),
        "digests": list(image.digests),
        "sizeBytes": image.size_bytes,
        "createdTime": serialize.timestamp(image.created_at),
    }
