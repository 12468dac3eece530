"""GET sd/hosts: the metrics listeners of all hosts, as Prometheus' HTTP service discovery reads them."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import Field

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.paths import DISCOVERY
from controller.kinds.host import KIND as HOST
from controller.kinds.meta import StoredObject
from controller.service.errors import ServiceUnavailable


class TargetLabels(models.Shape):
    """Labels of a target. Those in underscores tell Prometheus how to read it, and go away."""

    host: str
    scheme: Annotated[str, Field(alias="__scheme__")]
    path: Annotated[str, Field(alias="__metrics_path__")]


class TargetGroup(models.Shape):
    """One host: the address of its metrics listener, and its labels."""

    targets: list[str]
    labels: TargetLabels


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": list[TargetGroup]},
    **models.failures(ServiceUnavailable),
}
routes = APIRouter(tags=["Host"])


@routes.get(DISCOVERY, operation_id="discoverHosts", responses=_ANSWERS)
def hosts(services: UseCases) -> JSONResponse:
    """Hosts whose metrics can be read from elsewhere, for `http_sd_configs` of Prometheus."""
    stored_hosts = services.objects.list(HOST, None).objects
    return JSONResponse([_target(host) for host in stored_hosts if host.status.get("metricsURL")])


def _target(host: StoredObject) -> dict[str, Any]:
    url = urlsplit(str(host.status["metricsURL"]))
    labels = {"host": host.name, "__scheme__": url.scheme, "__metrics_path__": url.path}
    return {"targets": [url.netloc], "labels": labels}
