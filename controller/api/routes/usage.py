"""GET metrics: resource usage of one sandbox, or of all."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable
from controller.service.sandbox.usage import OLDEST_SECONDS, as_json
from controller.service.services import Services


class UsageFigures(models.Shape):
    """Usage of a sandbox. Counters start with its container; null means no limit, no network, or not reported.

    100 % of CPU is one busy core.
    """

    cpuPercent: float
    cpuLimitPercent: float | None
    memoryUsageBytes: int
    memoryLimitBytes: int | None
    networkReceiveBytes: int | None
    networkTransmitBytes: int | None
    diskReadBytes: int | None
    diskWriteBytes: int | None
    processes: int
    processesLimit: int | None
    uptimeSeconds: float


class SandboxMetrics(models.Shape):
    """Usage of one sandbox at `timestamp`; CPU is averaged over the `windowSeconds` before."""

    apiVersion: models.Version
    kind: Literal["SandboxMetrics"]
    metadata: models.ObjectMeta
    timestamp: str
    windowSeconds: float
    usage: UsageFigures


class SandboxMetricsList(models.Shape):
    """Usage of all running sandboxes."""

    apiVersion: models.Version
    kind: Literal["SandboxMetricsList"]
    items: list[SandboxMetrics]


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])
_FAILURES = models.failures(BadRequest, Conflict, NotFound, ServiceUnavailable)
MaxAge = Annotated[
    float,
    Query(
        alias="maxAgeSeconds",
        ge=0,
        le=OLDEST_SECONDS,
        description="a list of that age will do: all who ask so share one reading of the host",
    ),
]
_LISTED: dict[int | str, dict[str, Any]] = {
    200: {"model": SandboxMetricsList},
    **models.failures(BadRequest, ServiceUnavailable),
}


# `-` is not a valid object name, so these paths are unambiguous. They precede the one with a name.
@routes.get("/namespaces/{namespace}/sandboxes/-/metrics", operation_id="listSandboxMetrics", responses=_LISTED)
def of_namespace(services: UseCases, namespace: str, max_age: MaxAge = 0) -> Response:
    """CPU, memory, network, disk, processes and uptime of a namespace's running sandboxes."""
    return _list(services, namespace, max_age)


@routes.get("/sandboxes/-/metrics", operation_id="listSandboxMetricsEverywhere", responses=_LISTED)
def everywhere(services: UseCases, max_age: MaxAge = 0) -> Response:
    """CPU, memory, network, disk, processes and uptime of all running sandboxes."""
    return _list(services, None, max_age)


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/metrics",
    operation_id="readSandboxMetrics",
    responses={200: {"model": SandboxMetrics}, **_FAILURES},
)
def one(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Current CPU, memory, network, disk, processes and uptime."""
    return JSONResponse(as_json(services.usages.one(SANDBOX, namespace, name)))


def _list(services: Services, namespace: str | None, max_age: float) -> Response:
    found = services.usages.every(SANDBOX, namespace, max_age_seconds=max_age)
    return Response(found.json, media_type="application/json")
