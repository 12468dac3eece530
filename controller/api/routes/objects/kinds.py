"""Routes of a kind, generated from its registration; a new kind needs no code here."""

from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from controller.api.common import models
from controller.api.common.dependencies import LargeBodies, UseCases
from controller.api.common.listing import list_of
from controller.api.common.models import PREFIX
from controller.api.common.parsing import BoundedRoute, DirectRoute
from controller.api.common.queries import Deletion, DryRun, ListQuery, deletion, list_query
from controller.api.streams.listing import Parts, answer
from controller.api.streams.watch import MEDIA_TYPE, RequestWatches, WatchStreams, as_objects, as_tables
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.listing import serialize
from controller.service.listing.table import KUBERNETES, table
from controller.service.objects.objects import ObjectPage
from controller.service.objects.texts import WholeList
from controller.service.services import Services
from controller.version import API_GROUP, API_VERSION

# OpenAPI describes these headers as content types, or not at all.
Accept = Annotated[str, Header(description="`application/json;as=Table` gives rows", include_in_schema=False)]
Labels = Annotated[str, Query(alias="labelSelector", max_length=4096)]
Agent = Annotated[str, Header(alias="user-agent", include_in_schema=False)]
Listing = Annotated[ListQuery, Depends(list_query)]
How = Annotated[Deletion, Depends(deletion)]
Name = Annotated[str, Path(description="the object's name")]
_READ_FAILURES = (errors.BadRequest, errors.NotFound, errors.ServiceUnavailable)
_LIST_FAILURES = (errors.BadRequest, errors.Gone, errors.TooManyRequests, errors.ServiceUnavailable)
_WRITE_FAILURES = (errors.BadRequest, errors.Conflict, errors.Invalid, errors.ServiceUnavailable)


discovery = APIRouter(prefix=PREFIX, tags=["discovery"])
groups = APIRouter(include_in_schema=False)
_VERSION = {"groupVersion": API_VERSION, "version": API_VERSION.partition("/")[2]}
_GROUP = {"name": API_GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}
_DISCOVERED: dict[int | str, dict[str, Any]] = {200: {"model": models.ApiResourceList}, **models.failures()}


@groups.get("/api")
async def core() -> JSONResponse:
    """The version of Kubernetes' own group, which has sandboxes by the name of pods; kubectl asks for it first."""
    return JSONResponse({"kind": "APIVersions", "versions": ["v1"]})


@groups.get("/apis")
async def group_list() -> JSONResponse:
    """The one group of the API, for kubectl."""
    return JSONResponse({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]})


@groups.get(f"/apis/{API_GROUP}")
async def group() -> JSONResponse:
    """The group's versions, for kubectl."""
    return JSONResponse({"kind": "APIGroup", "apiVersion": "v1", **_GROUP})


@discovery.get("", operation_id="discover", responses=_DISCOVERED)
async def discover(services: UseCases) -> JSONResponse:
    """The served kinds and their names."""
    kinds = [serialize.resource(kind) for kind in services.registry]
    return JSONResponse({"kind": "APIResourceList", "groupVersion": API_VERSION, "resources": kinds})


async def namespace_in_path(namespace: Annotated[str, Path(description="the namespace")]) -> str:
    """Describe the path's namespace in OpenAPI."""
    return namespace


async def _namespace(connection: HTTPConnection) -> str:
    return str(connection.path_params.get("namespace", ""))


def as_table(accept: str) -> str:
    """Return the version of the Table that the client accepts; "" if it wants objects."""
    accepted = accept.replace(" ", "").lower()
    if "as=table" not in accepted:
        return ""
    return KUBERNETES if "g=meta.k8s.io" in accepted else API_VERSION


Namespace = Annotated[str, Depends(_namespace)]


class KindHandlers:
    """Handlers of one kind's routes, wherever its objects live."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    async def list_everywhere(
        self, services: UseCases, streams: RequestWatches, request: Request, query: Listing, accept: Accept = ""
    ) -> Response:
        """The objects of every namespace, or a watch of them."""
        if query.watch:
            return await self._watch(services, streams, None, query, accept)
        return await self._list(services, request, None, query, accept)

    async def list_(
        self,
        services: UseCases,
        streams: RequestWatches,
        request: Request,
        namespace: Namespace,
        query: Listing,
        accept: Accept = "",
    ) -> Response:
        """The objects, or a watch of them."""
        if query.watch:
            return await self._watch(services, streams, namespace, query, accept)
        return await self._list(services, request, namespace, query, accept)

    async def create(
        self,
        services: UseCases,
        parsing: LargeBodies,
        request: Request,
        namespace: Namespace,
        dry_run: DryRun = False,
        agent: Agent = "",
    ) -> JSONResponse:
        """Create an object; 409 AlreadyExists when its name is taken."""
        body = await request.body()
        write = partial(self._create, services, namespace, body, agent, _file(request), dry_run=dry_run)
        return await parsing.run(len(body), write)

    def delete_all(
        self, services: UseCases, namespace: Namespace, how: How, labels: Labels = "", agent: Agent = ""
    ) -> Response:
        """Request the deletion of all objects that match the selector."""
        if how.dry_run:
            return list_of(self._kind, services.objects.list(self._kind, namespace, labels=labels))
        deleted = services.objects.delete_all(
            self._kind, namespace, labels=labels, propagation=how.propagation, deleted_by=agent
        )
        return list_of(self._kind, ObjectPage(deleted, 0))

    async def read(self, services: UseCases, namespace: Namespace, name: Name, accept: Accept = "") -> Response:
        """The object."""
        return await run_in_threadpool(self._read, services, namespace, name, accept)

    async def replace(
        self,
        services: UseCases,
        parsing: LargeBodies,
        request: Request,
        namespace: Namespace,
        name: Name,
        dry_run: DryRun = False,
        agent: Agent = "",
    ) -> JSONResponse:
        """Replace spec, labels and annotations; 409 Conflict when metadata.resourceVersion is outdated."""
        body = await request.body()
        write = partial(self._replace, services, namespace, name, body, agent, _file(request), dry_run=dry_run)
        return await parsing.run(len(body), write)

    def delete(
        self,
        services: UseCases,
        namespace: Namespace,
        name: Name,
        how: How,
        agent: Agent = "",
    ) -> JSONResponse:
        """Request the deletion of the object; it disappears once everything it owns is removed."""
        if how.dry_run:
            return JSONResponse(serialize.obj(services.objects.get(self._kind, namespace, name)))
        deleted = services.objects.delete(self._kind, namespace, name, propagation=how.propagation, deleted_by=agent)
        return JSONResponse(serialize.obj(deleted))

    async def _watch(
        self, services: Services, streams: WatchStreams, namespace: str | None, query: ListQuery, accept: str
    ) -> Response:
        open_ = partial(
            services.watches.open,
            self._kind,
            namespace,
            name=query.name,
            labels=query.labels,
            since=query.since,
            bookmarks=query.bookmarks,
        )
        # As tables of one row and that version, or as whole objects.
        version = as_table(accept)
        encode = as_tables(self._kind, services.objects.now, version) if version else as_objects(self._kind)
        return await streams.answer(open_, encode, query.seconds or None)

    def _read(self, services: Services, namespace: str, name: str, accept: str) -> Response:
        stored = services.objects.get(self._kind, namespace, name)
        if version := as_table(accept):
            return JSONResponse(table(self._kind, [stored], services.objects.now(), stored.resource_version, version))
        return JSONResponse(serialize.obj(stored))

    async def _list(
        self, services: Services, request: Request, namespace: str | None, query: ListQuery, accept: str
    ) -> Response:
        texts = services.watches.texts
        objects = services.objects
        version = as_table(accept)
        whole_list, is_plain = WholeList(self._kind.name, namespace), query == ListQuery() and not version

        def known_body() -> bytes | None:
            return texts.cached_list(whole_list, objects.revision()) if is_plain else None

        def keep(revision: int, body: bytes) -> None:
            if is_plain:
                texts.keep_list(whole_list, revision, body)

        parts = Parts(self._kind, objects, texts, namespace=namespace, query=query, version=version)
        return await answer(parts, request.state.answer, known_body, keep)

    def _create(
        self, services: Services, namespace: str, body: bytes, agent: str, file: str, *, dry_run: bool
    ) -> JSONResponse:
        created = services.write.create(
            self._kind, namespace, _text(body), written_by=agent, file=file, dry_run=dry_run
        )
        return JSONResponse(serialize.obj(created), 201)

    def _replace(
        self, services: Services, namespace: str, name: str, body: bytes, agent: str, file: str, *, dry_run: bool
    ) -> JSONResponse:
        replaced = services.write.replace(
            self._kind, namespace, name, _text(body), written_by=agent, file=file, dry_run=dry_run
        )
        return JSONResponse(serialize.obj(replaced))


@cache
def router(kind: Kind) -> APIRouter:
    """Return the routes of one kind, for any application: building them takes some milliseconds."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name], route_class=BoundedRoute)
    handlers = KindHandlers(kind)
    if kind.namespaced:
        everywhere = f"list{kind.name}ForAllNamespaces"
        path = f"/{kind.plural}"
        _add_read(routes, path, handlers.list_everywhere, operation_id=everywhere, responses=_list_answers(kind))
    _add_collection(routes, kind, handlers)
    _add_object(routes, kind, handlers)
    return routes


def collection(kind: Kind) -> tuple[str, list[Any]]:
    """Return the path of a kind's collection, and the dependencies that describe the path."""
    if kind.namespaced:
        return f"/namespaces/{{namespace}}/{kind.plural}", [Depends(namespace_in_path)]
    return f"/{kind.plural}", []


def _add_read(routes: APIRouter, path: str, handler: Callable[..., Any], **described: Any) -> None:
    """Add a route that clients poll."""
    routes.add_api_route(path, handler, methods=["GET"], route_class_override=DirectRoute, **described)


def _add_collection(routes: APIRouter, kind: Kind, handlers: KindHandlers) -> None:
    path, dependencies = collection(kind)
    deleted: dict[int | str, dict[str, Any]] = {200: {"model": models.list_model(kind)}}
    created: dict[int | str, dict[str, Any]] = {201: {"model": models.object_model(kind)}}
    _add_read(
        *(routes, path, handlers.list_),
        operation_id=f"list{kind.name}",
        responses=_list_answers(kind),
        dependencies=dependencies,
    )
    routes.post(
        path,
        operation_id=f"create{kind.name}",
        status_code=201,
        responses={**created, **models.failures(*_WRITE_FAILURES)},
        openapi_extra=_body(kind),
        dependencies=dependencies,
    )(handlers.create)
    routes.delete(
        path,
        operation_id=f"deleteCollection{kind.name}",
        responses={**deleted, **models.failures(errors.BadRequest, errors.Conflict, errors.ServiceUnavailable)},
        dependencies=dependencies,
    )(handlers.delete_all)


def _add_object(routes: APIRouter, kind: Kind, handlers: KindHandlers) -> None:
    many, dependencies = collection(kind)
    path, model = f"{many}/{{name}}", models.object_model(kind)
    read_one: dict[int | str, dict[str, Any]] = {200: {"model": model | models.Table}}
    changed: dict[int | str, dict[str, Any]] = {200: {"model": model}}
    _add_read(
        *(routes, path, handlers.read),
        operation_id=f"read{kind.name}",
        responses={**read_one, **models.failures(*_READ_FAILURES)},
        dependencies=dependencies,
    )
    routes.put(
        path,
        operation_id=f"replace{kind.name}",
        responses={**changed, **models.failures(errors.NotFound, *_WRITE_FAILURES)},
        openapi_extra=_body(kind),
        dependencies=dependencies,
    )(handlers.replace)
    routes.delete(
        path,
        operation_id=f"delete{kind.name}",
        responses={**changed, **models.failures(*_READ_FAILURES, errors.Conflict)},
        dependencies=dependencies,
    )(handlers.delete)


def _list_answers(kind: Kind) -> dict[int | str, dict[str, Any]]:
    """Return the responses of a list: objects or rows, or the lines of a watch."""
    watch = {"schema": {"$ref": f"#/components/schemas/{models.watch_model(kind).__name__}"}}
    return {
        200: {"model": models.list_model(kind) | models.Table, "content": {MEDIA_TYPE: watch}},
        **models.failures(*_LIST_FAILURES),
    }


def _body(kind: Kind) -> dict[str, Any]:
    """Describe the body of a route that reads it as text, so that errors have positions."""
    ref = {"$ref": f"#/components/schemas/{models.written_model(kind).__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": ref}}}}


def _file(request: Request) -> str:
    """Return the name of a body in messages; "" for JSON, which programs write: its positions help nobody."""
    type_ = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return "" if type_ == "application/json" else "body"


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise errors.BadRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
