"""GET .../inspect: a sandbox's container as the engine tells of it, and our record of it."""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, NotFound, ServiceUnavailable
from controller.service.objects import serialize
from controller.version import API_VERSION


class Inspection(models.Shape):
    """`container` is in the engine's own words, null while there is none; the values of variables are hidden."""

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
    """The container as the engine tells of it now, and the Instance that records it. It takes the role user."""
    found = services.inspections.inspect(SANDBOX, namespace, name)
    return JSONResponse(
        {
            "apiVersion": API_VERSION,
            "kind": "Inspection",
            "metadata": serialize.metadata(found.obj),
            "container": found.container,
            "instance": None if found.instance is None else serialize.obj(found.instance),
        }
    )
