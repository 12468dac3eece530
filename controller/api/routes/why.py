"""GET .../why: the last decision for an object with what it was decided by."""

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, NotFound, ServiceUnavailable
from controller.service.explain.why import Reasons
from controller.service.objects import serialize
from controller.version import API_VERSION


class WhyFact(models.Shape):
    """One thing that counted, in words."""

    name: str
    value: str


class WhyCall(models.Shape):
    """An engine call that is due, and its reason."""

    call: str
    why: str


class WhyEvent(models.Shape):
    """What happened to the object, counted."""

    type: str
    reason: str
    message: str
    count: int
    firstTimestamp: str
    lastTimestamp: str


class Why(models.Shape):
    """Why an object is as it is. `until` is when it is looked at again at the latest, if nothing happens."""

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


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])
_FAILURES = models.failures(BadRequest, NotFound, ServiceUnavailable)


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/why",
    operation_id="readSandboxWhy",
    responses={200: {"model": Why}, **_FAILURES},
)
def why(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """What was wanted, seen and remembered, and what is done or waited for."""
    return JSONResponse(_answer(services.why.why(SANDBOX, namespace, name)))


def _answer(found: Reasons) -> serialize.Json:
    told = found.explanation
    until = None if told.until is None else serialize.timestamp(told.until)
    wait = None if told.until is None else round(max(0.0, told.until - found.at), 3)
    return {
        "apiVersion": API_VERSION,
        "kind": "Why",
        "metadata": serialize.metadata(found.obj),
        "time": serialize.timestamp(found.at),
        "verdict": told.verdict,
        "reason": told.reason,
        "message": told.message,
        "underWay": told.under_way,
        **({} if until is None else {"until": until, "waitSeconds": wait}),
        "wanted": _facts(told.wanted),
        "seen": _facts(told.seen),
        "remembered": _facts(told.remembered),
        "calls": [{"call": str(each), "why": each.why} for each in told.actions],
        "events": [{name: each.spec[name] for name in WhyEvent.model_fields} for each in found.events],
    }


def _facts(facts: tuple[tuple[str, str], ...]) -> list[serialize.Json]:
    return [{"name": name, "value": value} for name, value in facts]
