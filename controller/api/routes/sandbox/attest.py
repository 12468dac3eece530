"""GET attest: a sandbox inspected from inside and compared with its rendered config."""

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, NotFound, ServiceUnavailable
from controller.service.listing import serialize
from controller.service.sandbox.attest import Attested
from controller.version import API_VERSION


class AttestedFact(models.Shape):
    """One compared setting."""

    name: str
    found: str
    wanted: str
    holds: bool


class ReportRow(models.Shape):
    """One restriction of the sandbox."""

    name: str
    found: str


class Attestation(models.Shape):
    """The kernel's view of a sandbox, and the Secured condition that follows from it."""

    apiVersion: models.Version
    kind: Literal["Attestation"]
    metadata: models.ObjectMeta
    time: str
    secured: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    facts: list[AttestedFact]
    report: list[ReportRow]


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])
_FAILURES = models.failures(BadRequest, NotFound, ServiceUnavailable)


@routes.get(
    "/namespaces/{namespace}/sandboxes/{name}/attest",
    operation_id="readSandboxAttestation",
    responses={200: {"model": Attestation}, **_FAILURES},
)
def attest(services: UseCases, namespace: str, name: str) -> JSONResponse:
    """Inspect the sandbox from inside now, through the host's kernel, and compare it with its rendered config."""
    return JSONResponse(_answer(services.attest.attest(SANDBOX, namespace, name)))


def _answer(attested: Attested) -> serialize.Json:
    verdict = attested.verdict
    return {
        "apiVersion": API_VERSION,
        "kind": "Attestation",
        "metadata": serialize.metadata(attested.obj),
        "time": serialize.timestamp(attested.at),
        "secured": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message,
        "facts": [
            {"name": fact.name, "found": fact.observed, "wanted": fact.desired, "holds": fact.holds}
            for fact in verdict.compared
        ],
        "report": [{"name": row.name, "found": row.observed} for row in attested.report],
    }
