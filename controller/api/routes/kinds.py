"""The routes of a kind, made from its registration: a new kind needs nothing here."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from controller.api.common import models
from controller.api.common.delete_options import propagation
from controller.api.common.listing import list_of, table_of
from controller.api.common.parsing import BoundedRoute, Parsing
from controller.api.common.paths import PREFIX
from controller.api.routes.watch import KindWatches, ListQuery, list_query
from controller.api.streams.watch import MEDIA_TYPE, WatchStreams
from controller.kinds.common.owner_reference import Propagation
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.objects import serialize
from controller.service.objects.objects import Found
from controller.service.objects.table import table
from controller.service.services import Services
from controller.version import API_VERSION

# OpenAPI describes these headers elsewhere (as content types), or not at all.
Accept = Annotated[str, Header(description="`application/json;as=Table` gives rows", include_in_schema=False)]
Labels = Annotated[str, Query(alias="labelSelector", max_length=4096)]
Agent = Annotated[str, Header(alias="user-agent", include_in_schema=False)]
Listing = Annotated[ListQuery, Depends(list_query)]
Cascade = Annotated[Propagation | None, Depends(propagation)]
Name = Annotated[str, Path(description="the object's name")]
_READ_FAILURES = (errors.BadRequest, errors.NotFound, errors.ServiceUnavailable)
_LIST_FAILURES = (errors.BadRequest, errors.Gone, errors.TooManyRequests, errors.ServiceUnavailable)
_WRITE_FAILURES = (errors.BadRequest, errors.Conflict, errors.Invalid, errors.ServiceUnavailable)


def discovery(services: Services) -> APIRouter:
    """GET on the API version itself: which kinds there are, as kubectl asks it."""
    routes = APIRouter(prefix=PREFIX, tags=["discovery"])
    answers: dict[int | str, dict[str, Any]] = {200: {"model": models.ApiResourceList}, **models.failures()}

    @routes.get("", operation_id="discover", responses=answers)
    async def discover() -> JSONResponse:
        """The kinds served here and the words for them."""
        kinds = [serialize.resource(kind) for kind in services.registry]
        return JSONResponse({"kind": "APIResourceList", "groupVersion": API_VERSION, "resources": kinds})

    return routes


def router(kind: Kind, services: Services, streams: WatchStreams) -> APIRouter:
    """The routes of one kind."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name], route_class=BoundedRoute)
    answers = _Answers(kind, services, KindWatches(kind, services, streams))
    many = f"/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"/{kind.plural}"
    where = _in_path if kind.namespaced else _on_host
    if kind.namespaced:
        _add_list_everywhere(routes, kind, answers)
    _add_collection(routes, kind, answers, many, where)
    _add_object(routes, kind, answers, f"{many}/{{name}}", where)
    return routes


def as_table(accept: str) -> bool:
    """Whether the client asked for rows."""
    return "as=table" in accept.replace(" ", "").lower()


async def _in_path(namespace: Annotated[str, Path(description="the namespace")]) -> str:
    return namespace


async def _on_host() -> str:
    return ""


class _Answers:
    """What the routes of a kind answer, wherever the kind lives."""

    def __init__(self, kind: Kind, services: Services, watches: KindWatches) -> None:
        self._kind, self._objects, self._write, self._watches = kind, services.objects, services.write, watches

    async def many(self, namespace: str | None, query: ListQuery, accept: str) -> Response:
        if query.watch:
            return await self._watches.answer(namespace, query, rows=as_table(accept))
        return await run_in_threadpool(self._list, namespace, query, accept)

    def _list(self, namespace: str | None, query: ListQuery, accept: str) -> Response:
        found = self._objects.list(self._kind, namespace, labels=query.labels, fields=query.fields)
        if as_table(accept):
            return table_of(self._kind, found, self._objects.now())
        return list_of(self._kind, found)

    def one(self, namespace: str, name: str, accept: str) -> JSONResponse:
        found = self._objects.get(self._kind, namespace, name)
        if as_table(accept):
            return JSONResponse(table(self._kind, [found], self._objects.now(), found.resource_version))
        return JSONResponse(serialize.obj(found))

    def create(self, namespace: str, body: bytes, agent: str) -> JSONResponse:
        return JSONResponse(
            serialize.obj(self._write.create(self._kind, namespace, _text(body), written_by=agent)), 201
        )

    def replace(self, namespace: str, name: str, body: bytes, agent: str) -> JSONResponse:
        found = self._write.replace(self._kind, namespace, name, _text(body), written_by=agent)
        return JSONResponse(serialize.obj(found))

    def delete(self, namespace: str, name: str, cascade: Propagation | None, agent: str) -> JSONResponse:
        found = self._objects.delete(self._kind, namespace, name, propagation=cascade, deleted_by=agent)
        return JSONResponse(serialize.obj(found))

    def delete_all(self, namespace: str, labels: str, cascade: Propagation | None, agent: str) -> Response:
        gone = self._objects.delete_all(self._kind, namespace, labels=labels, propagation=cascade, deleted_by=agent)
        return list_of(self._kind, Found(gone, 0))


def _listed(kind: Kind) -> dict[int | str, dict[str, Any]]:
    """The answers of a list: objects or rows, or the lines of a watch."""
    watch = {"schema": {"$ref": f"#/components/schemas/{models.watch_model(kind).__name__}"}}
    return {
        200: {"model": models.list_model(kind) | models.Table, "content": {MEDIA_TYPE: watch}},
        **models.failures(*_LIST_FAILURES),
    }


def _body(kind: Kind) -> dict[str, Any]:
    """The request body of a route that reads it as text, so that errors can say where."""
    ref = {"$ref": f"#/components/schemas/{models.written_model(kind).__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": ref}}}}


def _add_list_everywhere(routes: APIRouter, kind: Kind, answers: _Answers) -> None:
    @routes.get(f"/{kind.plural}", operation_id=f"list{kind.name}ForAllNamespaces", responses=_listed(kind))
    async def list_everywhere(query: Listing, accept: Accept = "") -> Response:
        """The objects of every namespace, or a watch of them."""
        return await answers.many(None, query, accept)


def _add_collection(
    routes: APIRouter, kind: Kind, answers: _Answers, path: str, where: Callable[..., Awaitable[str]]
) -> None:
    place = Annotated[str, Depends(where)]
    deleted: dict[int | str, dict[str, Any]] = {200: {"model": models.list_model(kind)}}
    created: dict[int | str, dict[str, Any]] = {201: {"model": models.object_model(kind)}}

    @routes.get(path, operation_id=f"list{kind.name}", responses=_listed(kind))
    async def list_(namespace: place, query: Listing, accept: Accept = "") -> Response:
        """The objects, or a watch of them."""
        return await answers.many(namespace, query, accept)

    @routes.post(
        path,
        operation_id=f"create{kind.name}",
        status_code=201,
        responses={**created, **models.failures(*_WRITE_FAILURES)},
        openapi_extra=_body(kind),
    )
    async def create(request: Request, namespace: place, agent: Agent = "") -> JSONResponse:
        """Create an object; 409 AlreadyExists when there is one of its name."""
        body = await request.body()
        parsing: Parsing = request.app.state.parsing
        return await parsing.run(len(body), answers.create, namespace, body, agent)

    @routes.delete(
        path,
        operation_id=f"deleteCollection{kind.name}",
        responses={**deleted, **models.failures(errors.BadRequest, errors.Conflict, errors.ServiceUnavailable)},
    )
    def delete_all(namespace: place, cascade: Cascade, labels: Labels = "", agent: Agent = "") -> Response:
        """Ask for the deletion of all objects that the selector matches."""
        return answers.delete_all(namespace, labels, cascade, agent)


def _add_object(
    routes: APIRouter, kind: Kind, answers: _Answers, path: str, where: Callable[..., Awaitable[str]]
) -> None:
    place = Annotated[str, Depends(where)]
    model = models.object_model(kind)
    read_one: dict[int | str, dict[str, Any]] = {200: {"model": model | models.Table}}
    changed: dict[int | str, dict[str, Any]] = {200: {"model": model}}

    @routes.get(path, operation_id=f"read{kind.name}", responses={**read_one, **models.failures(*_READ_FAILURES)})
    def read(namespace: place, name: Name, accept: Accept = "") -> JSONResponse:
        """The object."""
        return answers.one(namespace, name, accept)

    @routes.put(
        path,
        operation_id=f"replace{kind.name}",
        responses={**changed, **models.failures(errors.NotFound, *_WRITE_FAILURES)},
        openapi_extra=_body(kind),
    )
    async def replace(
        request: Request,
        namespace: place,
        name: Name,
        agent: Agent = "",
    ) -> JSONResponse:
        """Replace spec, labels and annotations; 409 Conflict when metadata.resourceVersion is not the object's."""
        body = await request.body()
        parsing: Parsing = request.app.state.parsing
        return await parsing.run(len(body), answers.replace, namespace, name, body, agent)

    @routes.delete(
        path,
        operation_id=f"delete{kind.name}",
        responses={**changed, **models.failures(*_READ_FAILURES, errors.Conflict)},
    )
    def delete(namespace: place, name: Name, cascade: Cascade, agent: Agent = "") -> JSONResponse:
        """Ask for the deletion of the object; it is gone once nothing of it is left."""
        return answers.delete(namespace, name, cascade, agent)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise errors.BadRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
