"""GET .../attest: a box read from inside, at once, and held against what was rendered."""

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.paths import PREFIX
from controller.kinds.registry import Kind
from controller.service.errors import BadRequest, NotFound, ServiceUnavailable
from controller.service.objects import serialize
from controller.service.sandbox.attest import Attested
from controller.service.services import Services
from controller.version import API_VERSION


class AttestedFact(models.Shape):
    """One thing that was compared, in words."""

    name: str
    found: str
    wanted: str
    holds: bool


class ReportRow(models.Shape):
    """One thing that confines the box, in words."""

    name: str
    found: str


class Attestation(models.Shape):
    """What the host's kernel says of a box's inside, and what the Secured condition says of that."""

    apiVersion: models.Version
    kind: Literal["Attestation"]
    metadata: models.ObjectMeta
    time: str
    secured: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    facts: list[AttestedFact]
    report: list[ReportRow]


def router(kind: Kind, services: Services) -> APIRouter:
    """The route of a kind that has a box."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])
    failures = models.failures(BadRequest, NotFound, ServiceUnavailable)

    @routes.get(
        f"/namespaces/{{namespace}}/{kind.plural}/{{name}}/attest",
        operation_id=f"read{kind.name}Attestation",
        responses={200: {"model": Attestation}, **failures},
    )
    def attest(namespace: str, name: str) -> JSONResponse:
        """Read the box from inside now, through the host's kernel, and compare it with what was rendered."""
        return JSONResponse(_answer(services.attest.attest(kind, namespace, name)))

    return routes


def _answer(found: Attested) -> serialize.Json:
    told = found.verdict
    return {
        "apiVersion": API_VERSION,
        "kind": "Attestation",
        "metadata": serialize.metadata(found.obj),
        "time": serialize.timestamp(found.at),
        "secured": told.status,
        "reason": told.reason,
        "message": told.message,
        "facts": [{name: getattr(each, name) for name in AttestedFact.model_fields} for each in told.compared],
        "report": [{"name": each.name, "found": each.found} for each in found.report],
    }
