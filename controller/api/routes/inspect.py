"""GET .../inspect: a sandbox's container as the engine tells of it, and our record of it."""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.paths import PREFIX
from controller.kinds.registry import Kind
from controller.service.errors import BadRequest, NotFound, ServiceUnavailable
from controller.service.objects import serialize
from controller.service.services import Services
from controller.version import API_VERSION


class Inspection(models.Shape):
    """`container` is in the engine's own words, null while there is none; the values of variables are hidden."""

    apiVersion: models.Version
    kind: Literal["Inspection"]
    metadata: models.ObjectMeta
    container: dict[str, Any] | None
    instance: dict[str, Any] | None


def router(kind: Kind, services: Services) -> APIRouter:
    """The route of a kind whose objects have a container."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])

    @routes.get(
        f"/namespaces/{{namespace}}/{kind.plural}/{{name}}/inspect",
        operation_id=f"inspect{kind.name}",
        responses={200: {"model": Inspection}, **models.failures(BadRequest, NotFound, ServiceUnavailable)},
    )
    def inspect(namespace: str, name: str) -> JSONResponse:
        """The container as the engine tells of it now, and the Instance that records it. It takes the role user."""
        found = services.inspections.inspect(kind, namespace, name)
        return JSONResponse(
            {
                "apiVersion": API_VERSION,
                "kind": "Inspection",
                "metadata": serialize.metadata(found.obj),
                "container": found.container,
                "instance": None if found.instance is None else serialize.obj(found.instance),
            }
        )

    return routes
