"""Routes of a read-only kind: get and list, and delete if the kind allows it. Writes are refused."""

from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.listing import list_of, table_of
from controller.api.common.models import PREFIX
from controller.api.common.queries import ReadQuery, event_query, read_query
from controller.api.fleet import hosted
from controller.api.routes.objects.kinds import Accept, Agent, How, Name, as_table, collection
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.listing import serialize
from controller.service.listing.table import table
from controller.service.objects.objects import ObjectPage
from controller.service.services import Services

_FAILURES = models.failures(errors.BadRequest, errors.NotFound, errors.MethodNotAllowed, errors.ServiceUnavailable)
_WRITING = ["POST", "PUT", "PATCH", "DELETE"]


async def _namespace(connection: HTTPConnection) -> str | None:
    return connection.path_params.get("namespace")


async def _host(
    host: Annotated[
        str, Query(max_length=63, description="the host that has the object; needed if several have one of that name")
    ] = "",
) -> str:
    """Describe the query's host in OpenAPI."""
    return host


Namespace = Annotated[str | None, Depends(_namespace)]


class ReadOnlyHandlers:
    """Handlers of one read-only kind's routes."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def list_(
        self,
        request: Request,
        services: UseCases,
        namespace: Namespace,
        query: Annotated[ReadQuery, Depends(read_query)],
        accept: Accept = "",
    ) -> Response:
        """The current objects."""
        return self._many(request, services, namespace, query, accept)

    def read(
        self, request: Request, services: UseCases, namespace: Namespace, name: Name, accept: Accept = ""
    ) -> JSONResponse:
        """The current object."""
        if self._kind.by_host:
            hosted.send_on(self._kind, request, services, namespace or "", name)
        stored = services.objects.get(self._kind, namespace or "", name)
        if self._kind.seen_by_host:
            stored = hosted.merge_status(self._kind, request, stored)
        if version := as_table(accept):
            kind = hosted.with_column(self._kind, request)
            return JSONResponse(table(kind, [stored], services.objects.now(), stored.resource_version, version))
        return JSONResponse(serialize.object_json(self._kind, stored))

    def delete(
        self,
        request: Request,
        services: UseCases,
        namespace: Namespace,
        name: Name,
        how: How,
        agent: Agent = "",
    ) -> JSONResponse:
        """Delete the object and its data; 409 Conflict names its users."""
        if self._kind.by_host:
            hosted.send_on(self._kind, request, services, namespace or "", name)
        if how.dry_run:
            return JSONResponse(
                serialize.object_json(self._kind, services.objects.get(self._kind, namespace or "", name))
            )
        deleted = services.objects.delete(self._kind, namespace or "", name, deleted_by=agent)
        return JSONResponse(serialize.object_json(self._kind, deleted))

    def refuse(self) -> JSONResponse:
        """Refuse a write."""
        message = f"{self._kind.name} is read-only: {self._kind.read_only}"
        raise errors.MethodNotAllowed(message, kind=self._kind.plural)

    def _many(
        self, request: Request, services: Services, namespace: str | None, query: ReadQuery, accept: str
    ) -> Response:
        if query.watch:
            message = f"{self._kind.plural} are computed at each request and can't be watched; poll instead"
            raise errors.MethodNotAllowed(message, kind=self._kind.plural)
        objects, fields = services.objects, hosted.own_fields(self._kind, request, query.fields)

        def own_page() -> ObjectPage:
            return objects.list(self._kind, namespace, labels=query.labels, fields=fields, limit=query.limit)

        page, missing = (
            hosted.list_everywhere(self._kind, request, own_page) if self._kind.by_host else (own_page(), None)
        )
        if self._kind.seen_by_host:
            page = hosted.merge_statuses(self._kind, request, page)
        if version := as_table(accept):
            return table_of(hosted.with_column(self._kind, request), page, objects.now(), version, missing)
        return list_of(self._kind, page, missing=missing)


class EventHandlers(ReadOnlyHandlers):
    """Handlers of the routes of events, whose lists take more parameters."""

    def list_(
        self,
        request: Request,
        services: UseCases,
        namespace: Namespace,
        query: Annotated[ReadQuery, Depends(event_query)],
        accept: Accept = "",
    ) -> Response:
        """The current objects."""
        return self._many(request, services, namespace, query, accept)


@cache
def router(kind: Kind) -> APIRouter:
    """Return the routes of one kind, for any application."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])
    handlers = (EventHandlers if kind.name == "Event" else ReadOnlyHandlers)(kind)
    many, dependencies = collection(kind)
    if kind.namespaced:
        _add_list(
            routes,
            kind,
            handlers,
            path=f"/{kind.plural}",
            dependencies=[],
            operation_id=f"list{kind.name}ForAllNamespaces",
        )
    _add_list(routes, kind, handlers, path=many, dependencies=dependencies, operation_id=f"list{kind.name}")
    _add_object(routes, kind, handlers, f"{many}/{{name}}", dependencies)
    return routes


def _add_list(
    routes: APIRouter, kind: Kind, handlers: ReadOnlyHandlers, path: str, dependencies: list[Any], operation_id: str
) -> None:
    answers: dict[int | str, dict[str, Any]] = {200: {"model": models.list_model(kind) | models.Table}}
    routes.get(path, operation_id=operation_id, responses={**answers, **_FAILURES}, dependencies=dependencies)(
        handlers.list_
    )
    routes.api_route(path, methods=_WRITING, include_in_schema=False)(handlers.refuse)


def _add_object(routes: APIRouter, kind: Kind, handlers: ReadOnlyHandlers, path: str, dependencies: list[Any]) -> None:
    if kind.by_host:
        dependencies = [*dependencies, Depends(_host)]
    answers: dict[int | str, dict[str, Any]] = {200: {"model": models.object_model(kind) | models.Table}}
    routes.get(path, operation_id=f"read{kind.name}", responses={**answers, **_FAILURES}, dependencies=dependencies)(
        handlers.read
    )
    if kind.deletable:
        deleted: dict[int | str, dict[str, Any]] = {200: {"model": models.object_model(kind)}}
        failures = models.failures(errors.BadRequest, errors.NotFound, errors.Conflict, errors.ServiceUnavailable)
        routes.delete(
            path, operation_id=f"delete{kind.name}", responses={**deleted, **failures}, dependencies=dependencies
        )(handlers.delete)
    routes.api_route(path, methods=_WRITING, include_in_schema=False)(handlers.refuse)
