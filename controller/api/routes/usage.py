"""GET metrics: resource usage of one sandbox, or of all."""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable
from controller.service.sandbox.usage import as_json
from controller.service.services import Services
from controller.version import API_VERSION


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
_LISTED: dict[int | str, dict[str, Any]] = {
    200: {"model": SandboxMetricsList},
    **models.failures(BadRequest, ServiceUnavailable),
}


# `-` is not a valid object name, so these paths are unambiguous. They precede the one with a name.
@routes.get("/namespaces/{namespace}/sandboxes/-/metrics", operation_id="listSandboxMetrics", responses=_LISTED)
def of_namespace(services: UseCases, namespace: str) -> JSONResponse:
    """CPU, memory, network, disk, processes and uptime of a namespace's running sandboxes."""
    return _list(services, namespace)


@routes.get("/sandboxes/-/metrics", operation_id="listSandboxMetricsEverywhere", responses=_LISTED)
def everywhere(services: UseCases) -> JSONResponse:
    """CPU, memory, network, disk, processes and uptime of all running sandboxes."""
    return _list(services, None)


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/metrics",
    operation_id="readSandboxMetrics",
    responses={200: {"model": SandboxMetrics}, **_FAILURES},
)
def one(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Current CPU, memory, network, disk, processes and uptime."""
    return JSONResponse(as_json(services.usages.one(SANDBOX, namespace, name)))


def _list(services: Services, namespace: str | None) -> JSONResponse:
    items = [as_json(each) for each in services.usages.every(SANDBOX, namespace)]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "SandboxMetricsList", "items": items})
