"""GET metrics: resource usage of one sandbox, or of all."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.fleet.collect import collect, unreadable
from controller.api.fleet.hosted import missing_as_json
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable
from controller.service.listing import serialize
from controller.service.sandbox.usage import OLDEST_SECONDS, as_json, list_json
from controller.service.sandbox.usage_history import PastUsage
from controller.service.services import Services
from controller.version import API_VERSION


class UsageFigures(models.Shape):
    """Usage of a sandbox. Counters start with its container; null means no limit, no network, or not reported.

    100 % of CPU is one busy core.
    """

    cpuPercent: float
    """CPU in use; 100 is one busy core."""
    cpuLimitPercent: float | None
    """Limit of CPU."""
    memoryUsageBytes: int
    """Memory in use."""
    memoryLimitBytes: int | None
    """Limit of memory."""
    networkReceiveBytes: int | None
    """Bytes received."""
    networkTransmitBytes: int | None
    """Bytes sent."""
    diskReadBytes: int | None
    """Bytes read from disks."""
    diskWriteBytes: int | None
    """Bytes written to disks."""
    processes: int
    """Number of processes and threads."""
    processesLimit: int | None
    """Limit of processes and threads."""
    uptimeSeconds: float
    """Seconds since its container started."""


class SandboxMetrics(models.Shape):
    """Usage of one sandbox at `timestamp`; CPU is averaged over the `windowSeconds` before.

    `host` runs it; left out where there is one host.
    """

    apiVersion: models.Version
    kind: Literal["SandboxMetrics"]
    metadata: models.ObjectMeta
    host: str | None = None
    timestamp: str
    windowSeconds: float
    usage: UsageFigures


class SandboxMetricsList(models.Shape):
    """Usage of all running sandboxes.

    Those of hosts that are `missing` are not in it. The field is left out where there is one host.
    """

    apiVersion: models.Version
    kind: Literal["SandboxMetricsList"]
    items: list[SandboxMetrics]
    missing: list[models.MissingHost] | None = None


class PastFigures(models.Shape):
    """Usage of a sandbox at a time; as in SandboxMetrics."""

    cpuPercent: float
    memoryUsageBytes: float | None
    memoryLimitBytes: float | None
    networkReceiveBytes: float | None
    networkTransmitBytes: float | None
    diskReadBytes: float | None
    diskWriteBytes: float | None
    processes: float | None


class PastMetrics(models.Shape):
    """One sample of the past."""

    timestamp: str
    usage: PastFigures


class SandboxMetricsHistory(models.Shape):
    """Usage of one sandbox over the last hour."""

    apiVersion: models.Version
    kind: Literal["SandboxMetricsHistory"]
    items: list[PastMetrics]


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
def of_namespace(request: Request, services: UseCases, namespace: str, max_age: MaxAge = 0) -> Response:
    """CPU, memory, network, disk, processes and uptime of a namespace's running sandboxes, on all hosts."""
    return _list(request, services, namespace, max_age)


@routes.get("/sandboxes/-/metrics", operation_id="listSandboxMetricsEverywhere", responses=_LISTED)
def everywhere(request: Request, services: UseCases, max_age: MaxAge = 0) -> Response:
    """CPU, memory, network, disk, processes and uptime of all running sandboxes, on all hosts."""
    return _list(request, services, None, max_age)


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/metrics",
    operation_id="readSandboxMetrics",
    responses={200: {"model": SandboxMetrics}, **_FAILURES},
)
def one(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Current CPU, memory, network, disk, processes and uptime."""
    return JSONResponse(as_json(services.usages.of_sandbox(SANDBOX, namespace, name)))


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/metrics/history",
    operation_id="readSandboxMetricsHistory",
    responses={200: {"model": SandboxMetricsHistory}, **models.failures(BadRequest, NotFound, ServiceUnavailable)},
)
def history(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Usage over the last hour, a sample each half minute, oldest first; since the start of the daemon."""
    obj = services.objects.get(SANDBOX, namespace, name)
    items = [_past(past) for past in services.usage_history.of(obj.uid)]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "SandboxMetricsHistory", "items": items})


def _past(past: PastUsage) -> dict[str, Any]:
    return {
        "timestamp": serialize.timestamp(past.at),
        "usage": {
            "cpuPercent": past.cpu_percent,
            "memoryUsageBytes": past.memory_bytes,
            "memoryLimitBytes": past.memory_limit_bytes,
            "networkReceiveBytes": past.network_receive_bytes,
            "networkTransmitBytes": past.network_transmit_bytes,
            "diskReadBytes": past.disk_read_bytes,
            "diskWriteBytes": past.disk_write_bytes,
            "processes": past.processes,
        },
    }


def _list(request: Request, services: Services, namespace: str | None, max_age: float) -> Response:
    usages = services.usages.of_all(SANDBOX, namespace, max_age_seconds=max_age)
    collected = collect(request)
    if collected is None:
        return Response(usages.json, media_type="application/json")
    items, missing = list(usages.items), list(collected.missing)
    for host, answer in collected.answers.items():
        other_items = _items(answer)
        if other_items is None:
            missing.append(unreadable(host))
        else:
            items += [{**entry, "host": host} for entry in other_items]
    items.sort(key=_key)
    return Response(list_json(items, missing=missing_as_json(missing)), media_type="application/json")


def _items(answer: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the items of another host's list; None: it is none."""
    items = answer.get("items")
    if answer.get("kind") != "SandboxMetricsList" or not isinstance(items, list):
        return None
    try:
        sorted(items, key=_key)
    except (KeyError, TypeError):
        return None
    return items


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item["metadata"]
    return str(metadata["namespace"]), str(metadata["name"])
