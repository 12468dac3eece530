"""The audit log, read and verified by admins of every namespace."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from controller.api.common import models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.kinds.access.audit import AuditEntry, ChainReport
from controller.service import errors
from controller.service.listing import serialize
from controller.version import API_VERSION


class AuditedObject(models.Shape):
    """The object of an audited request."""

    kind: str
    namespace: str
    name: str
    uid: str


class AuditedRequest(models.Shape):
    """One audited request; `hash` chains it to the one before of its `writer`, a daemon, whose entries `id` counts."""

    writer: str
    """Daemon that wrote the entry."""
    id: int
    """Number of the entry among those of its writer."""
    time: str
    """Time of the request."""
    actor: str
    """Caller."""
    source: str
    """Interface that it came by."""
    verb: str
    """Action that was asked for."""
    object: AuditedObject
    """Object that it was asked of."""
    outcome: str
    """Allowed, or refused."""
    detail: dict[str, Any]
    """Further facts, by verb."""
    hash: str
    """Hash of the entry and of the one before."""


class AuditList(models.Shape):
    """Audited requests, oldest first."""

    apiVersion: models.Version
    kind: Literal["AuditList"]
    items: list[AuditedRequest]


class AuditChain(models.Shape):
    """Result of verifying the chain of one writer, a daemon ("": of older versions, which had one chain for all)."""

    writer: str
    entries: int
    pruned: int
    lastId: int
    lastHash: str
    thinned: int
    problem: str


class AuditReport(models.Shape):
    """Result of a verification; an empty `problem` means that every hash of every chain is right.

    `lastId` and `lastHash` are those of the chain that was written last.
    """

    apiVersion: models.Version
    kind: Literal["AuditReport"]
    entries: int
    pruned: int
    lastId: int
    lastHash: str
    thinned: int
    problem: str
    chains: list[AuditChain]


routes = APIRouter(prefix=PREFIX, tags=["audit"])
_FAILURES: dict[int | str, dict[str, Any]] = models.failures(errors.BadRequest, errors.ServiceUnavailable)


@routes.get("/audit", operation_id="listAudit", responses={200: {"model": AuditList}, **_FAILURES})
def list_(
    services: UseCases,
    since: Annotated[float, Query(alias="sinceTime", ge=0, le=1e11, description="Unix seconds")] = 0.0,
    limit: Annotated[int, Query(ge=1, le=100_000, description="only the newest so many")] = 1000,
    writer: Annotated[str | None, Query(max_length=253, description="only those of this chain, in its order")] = None,
) -> JSONResponse:
    """Audited requests, oldest first."""
    services.recorder.flush()  # what has ended by now is in it
    with errors.translate_store_errors():
        entries = services.audit.entries(since=since, limit=limit, writer=writer)
    return JSONResponse(
        {"apiVersion": API_VERSION, "kind": "AuditList", "items": [_entry_json(entry) for entry in entries]}
    )


@routes.get("/audit/verify", operation_id="verifyAudit", responses={200: {"model": AuditReport}, **_FAILURES})
def verify(services: UseCases) -> JSONResponse:
    """Recompute every hash of the log, in the chain of each writer."""
    with errors.translate_store_errors():
        report = services.audit.verify()
    newest = report.newest
    sums = {"entries": report.entries, "pruned": report.pruned, "thinned": report.thinned, "problem": report.problem}
    last = {"lastId": newest.last_id, "lastHash": newest.last_hash}
    chains = [_chain(chain) for chain in report.chains]
    return JSONResponse({"apiVersion": API_VERSION, "kind": "AuditReport", **sums, **last, "chains": chains})


def _chain(report: ChainReport) -> serialize.Json:
    return {
        "writer": report.writer,
        "entries": report.entries,
        "pruned": report.pruned,
        "lastId": report.last_id,
        "lastHash": report.last_hash,
        "thinned": report.thinned,
        "problem": report.problem,
    }


def _entry_json(entry: AuditEntry) -> serialize.Json:
    return {
        "writer": entry.writer,
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
