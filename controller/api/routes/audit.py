"""The audit log, read and verified by admins of every namespace."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.access.audit import AuditEntry
from controller.service import errors
from controller.service.objects import serialize
from controller.version import API_VERSION


class AuditedObject(models.Shape):
    """The object of an audited request."""

    kind: str
    namespace: str
    name: str
    uid: str


class AuditedRequest(models.Shape):
    """One audited request; `hash` chains it to the one before."""

    id: int
    time: str
    actor: str
    source: str
    verb: str
    object: AuditedObject
    outcome: str
    detail: dict[str, Any]
    hash: str


class AuditList(models.Shape):
    """Audited requests, oldest first."""

    apiVersion: models.Version
    kind: Literal["AuditList"]
    items: list[AuditedRequest]


class AuditReport(models.Shape):
    """Result of a verification; an empty `problem` means that every hash is right."""

    apiVersion: models.Version
    kind: Literal["AuditReport"]
    entries: int
    pruned: int
    lastId: int
    lastHash: str
    thinned: int
    problem: str


routes = APIRouter(prefix=PREFIX, tags=["audit"])
_FAILURES: dict[int | str, dict[str, Any]] = models.failures(errors.BadRequest, errors.ServiceUnavailable)


@routes.get("/audit", operation_id="listAudit", responses={200: {"model": AuditList}, **_FAILURES})
def list_(
    services: UseCases,
    since: Annotated[float, Query(alias="sinceTime", ge=0, le=1e11, description="Unix seconds")] = 0.0,
    limit: Annotated[int, Query(ge=1, le=100_000, description="only the newest so many")] = 1000,
) -> JSONResponse:
    """Audited requests, oldest first."""
    services.recorder.flush()  # what has ended by now is in it
    with errors.translate_store_errors():
        found = services.audit.entries(since=since, limit=limit)
    return JSONResponse({"apiVersion": API_VERSION, "kind": "AuditList", "items": [_shown(each) for each in found]})


@routes.get("/audit/verify", operation_id="verifyAudit", responses={200: {"model": AuditReport}, **_FAILURES})
def verify(services: UseCases) -> JSONResponse:
    """Recompute every hash of the log."""
    with errors.translate_store_errors():
        found = services.audit.verify()
    names = {"entries": found.entries, "pruned": found.pruned, "lastId": found.last_id, "lastHash": found.last_hash}
    names |= {"thinned": found.thinned, "problem": found.problem}
    body = {"apiVersion": API_VERSION, "kind": "AuditReport", **names}
    return JSONResponse(body)


def _shown(entry: AuditEntry) -> serialize.Json:
    return {
        "id": entry.id,
        "time": serialize.timestamp(entry.at),
        "actor": entry.actor,
        "source": entry.source,
        "verb": entry.verb,
        "object": {"kind": entry.kind, "namespace": entry.namespace, "name": entry.name, "uid": entry.uid},
        "outcome": entry.outcome,
        "detail": dict(entry.detail),
        "hash": entry.hash,
    }
