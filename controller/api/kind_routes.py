"""The routes of a kind, made from its registration: a new kind needs nothing here."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse

from controller.api.paths import PREFIX
from controller.kinds.registry import Kind
from controller.service import wire
from controller.service.objects import Found
from controller.service.services import Services
from controller.service.table import table
from controller.version import API_VERSION

Accept = Annotated[str, Header(description="`application/json;as=Table` gives rows")]
Labels = Annotated[str, Query(alias="labelSelector", max_length=4096)]
Agent = Annotated[str, Header(alias="user-agent")]


def discovery(services: Services) -> APIRouter:
    """GET on the API version itself: which kinds there are, as kubectl asks it."""
    routes = APIRouter(prefix=PREFIX, tags=["discovery"])

    @routes.get("", operation_id="discover")
    async def discover() -> JSONResponse:
        """The kinds served here and the words for them."""
        kinds = [wire.resource(kind) for kind in services.registry]
        return JSONResponse({"kind": "APIResourceList", "groupVersion": API_VERSION, "resources": kinds})

    return routes


def router(kind: Kind, services: Services) -> APIRouter:
    """The routes of one kind."""
    return _namespaced(kind, services) if kind.namespaced else _of_host(kind, services)


def as_table(accept: str) -> bool:
    """Whether the client asked for rows."""
    return "as=table" in accept.replace(" ", "").lower()


class _Answers:
    """What the routes of a kind answer, wherever the kind lives."""

    def __init__(self, kind: Kind, services: Services) -> None:
        self._kind, self._objects = kind, services.objects

    def many(self, namespace: str | None, labels: str, accept: str) -> JSONResponse:
        found: Found = self._objects.list(self._kind, namespace, labels=labels)
        if as_table(accept):
            return JSONResponse(table(self._kind, found.objects, self._objects.now(), found.revision))
        return JSONResponse(wire.listing(self._kind.name, [wire.obj(each) for each in found.objects], found.revision))

    def one(self, namespace: str, name: str, accept: str) -> JSONResponse:
        found = self._objects.get(self._kind, namespace, name)
        if as_table(accept):
            return JSONResponse(table(self._kind, [found], self._objects.now()))
        return JSONResponse(wire.obj(found))

    def delete(self, namespace: str, name: str, agent: str) -> JSONResponse:
        return JSONResponse(wire.obj(self._objects.delete(self._kind, namespace, name, deleted_by=agent)))

    def delete_all(self, namespace: str, labels: str, agent: str) -> JSONResponse:
        gone = self._objects.delete_all(self._kind, namespace, labels=labels, deleted_by=agent)
        return JSONResponse(wire.listing(self._kind.name, [wire.obj(each) for each in gone], 0))


def _namespaced(kind: Kind, services: Services) -> APIRouter:
    answers, routes = _Answers(kind, services), APIRouter(prefix=PREFIX, tags=[kind.name])
    many, one = f"/namespaces/{{namespace}}/{kind.plural}", f"/namespaces/{{namespace}}/{kind.plural}/{{name}}"

    @routes.get(f"/{kind.plural}", operation_id=f"list{kind.name}ForAllNamespaces")
    def list_everywhere(labels: Labels = "", accept: Accept = "") -> JSONResponse:
        return answers.many(None, labels, accept)

    @routes.get(many, operation_id=f"list{kind.name}")
    def list_(namespace: str, labels: Labels = "", accept: Accept = "") -> JSONResponse:
        return answers.many(namespace, labels, accept)

    @routes.get(one, operation_id=f"read{kind.name}", responses={404: {}})
    def read(namespace: str, name: str, accept: Accept = "") -> JSONResponse:
        return answers.one(namespace, name, accept)

    @routes.delete(one, operation_id=f"delete{kind.name}", responses={404: {}})
    def delete(namespace: str, name: str, agent: Agent = "") -> JSONResponse:
        return answers.delete(namespace, name, agent)

    @routes.delete(many, operation_id=f"deleteCollection{kind.name}")
    def delete_all(namespace: str, labels: Labels = "", agent: Agent = "") -> JSONResponse:
        return answers.delete_all(namespace, labels, agent)

    return routes


def _of_host(kind: Kind, services: Services) -> APIRouter:
    answers, routes = _Answers(kind, services), APIRouter(prefix=PREFIX, tags=[kind.name])
    many, one = f"/{kind.plural}", f"/{kind.plural}/{{name}}"

    @routes.get(many, operation_id=f"list{kind.name}")
    def list_(labels: Labels = "", accept: Accept = "") -> JSONResponse:
        return answers.many("", labels, accept)

    @routes.get(one, operation_id=f"read{kind.name}", responses={404: {}})
    def read(name: str, accept: Accept = "") -> JSONResponse:
        return answers.one("", name, accept)

    @routes.delete(one, operation_id=f"delete{kind.name}", responses={404: {}})
    def delete(name: str, agent: Agent = "") -> JSONResponse:
        return answers.delete("", name, agent)

    @routes.delete(many, operation_id=f"deleteCollection{kind.name}")
    def delete_all(labels: Labels = "", agent: Agent = "") -> JSONResponse:
        return answers.delete_all("", labels, agent)

    return routes
