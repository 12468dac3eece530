"""GET why: the planner's last decision for an object, with its inputs."""

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable
from controller.service.explain.why import as_json


class WhyFact(models.Shape):
    """One input of a decision."""

    name: str
    value: str


class WhyCall(models.Shape):
    """A due engine call and its reason."""

    call: str
    why: str


class WhyEvent(models.Shape):
    """An event of the object, counted."""

    type: str
    reason: str
    message: str
    count: int
    firstTimestamp: str
    lastTimestamp: str


class Why(models.Shape):
    """Explanation of an object's state. `until` is the latest time of the next decision."""

    apiVersion: models.Version
    kind: Literal["Why"]
    metadata: models.ObjectMeta
    time: str
    verdict: Literal["AsAsked", "Acting", "Waiting", "Refused", "Unknown", "NotSeenYet"]
    reason: str
    message: str
    underWay: bool
    until: str | None = None
    waitSeconds: float | None = None
    wanted: list[WhyFact]
    seen: list[WhyFact]
    remembered: list[WhyFact]
    calls: list[WhyCall]
    events: list[WhyEvent]


routes = APIRouter(prefix=PREFIX)
_FAILURES = models.failures(BadRequest, NotFound, ServiceUnavailable)


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/why",
    operation_id="readSandboxWhy",
    tags=["Sandbox"],
    responses={200: {"model": Why}, **_FAILURES},
)
def why(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Desired, observed and recorded state, and the pending action or wait."""
    return JSONResponse(as_json(services.why.why(SANDBOX, namespace, name)))


@routes.get(
    "/namespaces/{namespace}/mcpservers/{name}/why",
    operation_id="readMCPServerWhy",
    tags=["MCPServer"],
    responses={200: {"model": Why}, **_FAILURES, **models.failures(Conflict)},
)
def why_server(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Limits, sessions and tools of an MCP server, and what it waits for."""
    return JSONResponse(as_json(services.why.why_server(namespace, name)))
