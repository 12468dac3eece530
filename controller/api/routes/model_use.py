"""GET use of models: budgets of providers and model servers, and what each sandbox took of them today."""

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.service.errors import BadRequest, ServiceUnavailable
from controller.service.models.use import as_json
from controller.service.services import Services
from controller.version import API_VERSION


class ModelUseSource(models.Shape):
    """A provider or a model server."""

    kind: Literal["Provider", "ModelServer"]
    name: str


class ModelUseBy(models.Shape):
    """A sandbox, or a token on the host, and its use since `since`. `failed` requests got no answer of the model.

    `namesIt`: the sandbox's spec names the source. `reachable` is the reason of its condition ModelsReachable.
    """

    kind: Literal["Sandbox", "WorkflowRun", "Token"]
    name: str
    namesIt: bool
    reachable: str
    requests: int
    failed: int
    tokensIn: int
    tokensOut: int


class ModelUseReady(models.Shape):
    """The condition Ready of a source, empty before the first."""

    status: str
    reason: str
    message: str


class ModelUse(models.Shape):
    """Use of one source. `tokensToday` is reset at `resetTime`; null means no limit.

    `users` are counted since the day (UTC), or the daemon, began; they are up to half a minute late.
    """

    apiVersion: models.Version
    """Version of the API."""
    kind: Literal["ModelUse"]
    """Always ModelUse."""
    metadata: models.ObjectMeta
    """Metadata of the provider or model server."""
    source: ModelUseSource
    """Kind and name of the source."""
    models: list[str]
    """Models that it serves."""
    ready: ModelUseReady
    """Its condition Ready."""
    requestsLastMinute: int
    """Requests of the last minute."""
    requestsPerMinute: int | None
    """Most of them."""
    tokensToday: int
    """Tokens since the last reset."""
    tokensPerDay: int | None
    """Most of them."""
    concurrent: int | None
    """Most requests at a time."""
    resetTime: str
    """Time of the next reset of `tokensToday`."""
    since: str
    """Time from which `users` are counted."""
    users: list[ModelUseBy]
    """Use by sandbox or caller."""


class ModelUseList(models.Shape):
    """Use of the providers, then of the model servers."""

    apiVersion: models.Version
    kind: Literal["ModelUseList"]
    items: list[ModelUse]


routes = APIRouter(prefix=PREFIX, tags=["Provider"])
_LISTED = {200: {"model": ModelUseList}, **models.failures(BadRequest, ServiceUnavailable)}


# `-` is not a valid object name, so these paths are unambiguous.
@routes.get("/namespaces/{namespace}/providers/-/usage", operation_id="listModelUse", responses=_LISTED)
def of_namespace(services: UseCases, namespace: str) -> JSONResponse:
    """Budgets of a namespace's providers and model servers, and their use today."""
    return _list(services, namespace)


@routes.get("/providers/-/usage", operation_id="listModelUseEverywhere", responses=_LISTED)
def everywhere(services: UseCases) -> JSONResponse:
    """Budgets of all providers and model servers, and their use today."""
    return _list(services, None)


def _list(services: Services, namespace: str | None) -> JSONResponse:
    items = [as_json(usage) for usage in services.model_use.every(namespace)]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "ModelUseList", "items": items})
