"""GET inspect: a sandbox's container as reported by the engine, and its Instance record."""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, NotFound, ServiceUnavailable
from controller.service.listing import serialize
from controller.version import API_VERSION


class Inspection(models.Shape):
    """Inspection of a sandbox. `container` is the engine's raw report or null; values of variables are hidden."""

    apiVersion: models.Version
    kind: Literal["Inspection"]
    metadata: models.ObjectMeta
    container: dict[str, Any] | None
    instance: dict[str, Any] | None


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/inspect",
    operation_id="inspectSandbox",
    responses={200: {"model": Inspection}, **models.failures(BadRequest, NotFound, ServiceUnavailable)},
)
def inspect(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """The container as the engine reports it now, and its Instance. It requires the role user."""
    inspection = services.inspections.inspect(SANDBOX, namespace, name)
    return JSONResponse(
        {
            "apiVersion": API_VERSION,
            "kind": "Inspection",
            "metadata": serialize.metadata(inspection.obj),
            "container": inspection.container,
            "instance": None if inspection.instance is None else serialize.obj(inspection.instance),
        }
    )
