"""What happened to objects, newest last."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from controller.api import models
from controller.api.kind_routes import Accept, as_table
from controller.api.paths import PREFIX
from controller.service import errors, wire
from controller.service.services import Services
from controller.service.table import event_table

Kind = Annotated[str, Query(description="of objects of this kind only")]
Name = Annotated[str, Query(description="of objects of this name only")]
Uid = Annotated[str, Query(description="of the object with this uid only")]
Limit = Annotated[int, Query(ge=1, le=5000)]


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": models.ObjectEventList | models.Table},
    **models.failures(errors.BadRequest, errors.ServiceUnavailable),
}


def router(services: Services) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix=PREFIX, tags=["Event"])

    def answer(namespace: str | None, kind: str, name: str, uid: str, limit: int, accept: str) -> JSONResponse:
        found = services.objects.events(namespace, kind=kind, name=name, uid=uid, limit=limit)
        if as_table(accept):
            return JSONResponse(event_table(found, services.objects.now()))
        return JSONResponse(wire.listing("Event", [wire.event(each) for each in found], 0))

    @routes.get("/events", operation_id="listEventForAllNamespaces", responses=_ANSWERS)
    def everywhere(
        kind: Kind = "", name: Name = "", uid: Uid = "", limit: Limit = 500, accept: Accept = ""
    ) -> JSONResponse:
        return answer(None, kind, name, uid, limit, accept)

    @routes.get("/namespaces/{namespace}/events", operation_id="listEvent", responses=_ANSWERS)
    def in_namespace(
        namespace: str, kind: Kind = "", name: Name = "", uid: Uid = "", limit: Limit = 500, accept: Accept = ""
    ) -> JSONResponse:
        return answer(namespace, kind, name, uid, limit, accept)

    return routes
