"""The routes of a read-only kind: get and list, and delete where it has that. Others are refused with what to do."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.event_query import event_query
from controller.api.common.listing import list_of, table_of
from controller.api.common.paths import PREFIX
from controller.api.common.read_query import ReadQuery, read_query
from controller.api.routes.kinds import Accept, Agent, Cascade, Name, as_table
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.objects import serialize
from controller.service.objects.table import table
from controller.service.services import Services

_FAILURES = models.failures(errors.BadRequest, errors.NotFound, errors.MethodNotAllowed, errors.ServiceUnavailable)
_WRITING = ["POST", "PUT", "PATCH", "DELETE"]
Place = Callable[..., Awaitable[str | None]]


def router(kind: Kind, services: Services) -> APIRouter:
    """The routes of one kind."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])
    answers = _Answers(kind, services)
    query = event_query(services.registry) if kind.name == "Event" else read_query
    if not kind.namespaced:
        _add(routes, kind, answers, query, f"/{kind.plural}", _everywhere)
        return routes
    _add_list(routes, kind, answers, query, f"/{kind.plural}", _everywhere, f"list{kind.name}ForAllNamespaces")
    _add(routes, kind, answers, query, f"/namespaces/{{namespace}}/{kind.plural}", _in_path)
    return routes


async def _in_path(namespace: Annotated[str, Path(description="the namespace")]) -> str:
    return namespace


async def _everywhere() -> None:
    return None


class _Answers:
    """What the routes of a kind answer."""

    def __init__(self, kind: Kind, services: Services) -> None:
        self._kind, self._objects = kind, services.objects

    def many(self, namespace: str | None, query: ReadQuery, accept: str) -> Response:
        if query.watch:
            words = f"{self._kind.plural} are worked out at each reading and can't be watched; ask again instead"
            raise errors.MethodNotAllowed(words, kind=self._kind.plural)
        found = self._objects.list(self._kind, namespace, labels=query.labels, fields=query.fields, limit=query.limit)
        if as_table(accept):
            return table_of(self._kind, found, self._objects.now())
        return list_of(self._kind, found)

    def one(self, namespace: str | None, name: str, accept: str) -> JSONResponse:
        found = self._objects.get(self._kind, namespace or "", name)
        if as_table(accept):
            return JSONResponse(table(self._kind, [found], self._objects.now(), found.resource_version))
        return JSONResponse(serialize.shown(self._kind, found))

    def delete(self, namespace: str | None, name: str, agent: str) -> JSONResponse:
        found = self._objects.delete(self._kind, namespace or "", name, deleted_by=agent)
        return JSONResponse(serialize.shown(self._kind, found))

    def refuse(self) -> JSONResponse:
        words = f"{self._kind.name} is read-only: {self._kind.read_only}"
        raise errors.MethodNotAllowed(words, kind=self._kind.plural)


def _add(
    routes: APIRouter, kind: Kind, answers: _Answers, query: Callable[..., ReadQuery], path: str, where: Place
) -> None:
    _add_list(routes, kind, answers, query, path, where, f"list{kind.name}")
    place = Annotated[str | None, Depends(where)]
    found: dict[int | str, dict[str, Any]] = {200: {"model": models.object_model(kind) | models.Table}}

    @routes.get(f"{path}/{{name}}", operation_id=f"read{kind.name}", responses={**found, **_FAILURES})
    def read(namespace: place, name: Name, accept: Accept = "") -> JSONResponse:
        """The object, as it is now."""
        return answers.one(namespace, name, accept)

    if kind.deletable:
        _add_delete(routes, kind, answers, f"{path}/{{name}}", where)

    @routes.api_route(f"{path}/{{name}}", methods=_WRITING, include_in_schema=False)
    def refused() -> JSONResponse:
        return answers.refuse()


def _add_delete(routes: APIRouter, kind: Kind, answers: _Answers, path: str, where: Place) -> None:
    place = Annotated[str | None, Depends(where)]
    deleted: dict[int | str, dict[str, Any]] = {200: {"model": models.object_model(kind)}}
    failures = models.failures(errors.BadRequest, errors.NotFound, errors.Conflict, errors.ServiceUnavailable)

    @routes.delete(path, operation_id=f"delete{kind.name}", responses={**deleted, **failures})
    def delete(namespace: place, name: Name, _cascade: Cascade, agent: Agent = "") -> JSONResponse:
        """Delete the object for good; 409 Conflict names what uses it."""
        return answers.delete(namespace, name, agent)


def _add_list(
    routes: APIRouter,
    kind: Kind,
    answers: _Answers,
    query: Callable[..., ReadQuery],
    path: str,
    where: Place,
    operation_id: str,
) -> None:
    place = Annotated[str | None, Depends(where)]
    listing = Annotated[ReadQuery, Depends(query)]
    found: dict[int | str, dict[str, Any]] = {200: {"model": models.list_model(kind) | models.Table}}

    @routes.get(path, operation_id=operation_id, responses={**found, **_FAILURES})
    def list_(namespace: place, query: listing, accept: Accept = "") -> Response:
        """The objects, as they are now."""
        return answers.many(namespace, query, accept)

    @routes.api_route(path, methods=_WRITING, include_in_schema=False)
    def refused() -> JSONResponse:
        return answers.refuse()
