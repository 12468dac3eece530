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
    """Version of the API."""
    kind: Literal["Why"]
    """Always Why."""
    metadata: models.ObjectMeta
    """Metadata of the object."""
    time: str
    """Time of the explanation."""
    verdict: Literal["AsAsked", "Acting", "Waiting", "Refused", "Unknown", "NotSeenYet"]
    """Short answer: as the spec asks, an action under way, a wait, a refusal, or none yet."""
    reason: str
    """Reason of the condition that decides."""
    message: str
    """The same for people."""
    underWay: bool
    """True: an engine call for the object has not answered yet."""
    until: str | None = None
    """Latest time of the next decision; left out: nothing is due."""
    waitSeconds: float | None = None
    """Seconds until then."""
    wanted: list[WhyFact]
    """Facts that the spec asks for."""
    seen: list[WhyFact]
    """Facts that the engine and the host show."""
    remembered: list[WhyFact]
    """Facts that earlier passes recorded."""
    calls: list[WhyCall]
    """Engine calls that are due."""
    events: list[WhyEvent]
    """Events of the object, the latest first."""


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
