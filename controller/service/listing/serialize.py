"""Stored objects as the JSON that Kubernetes clients expect. Pure."""

from datetime import UTC, datetime
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import status_word
from controller.service.errors import ServiceError
from controller.version import API_GROUP, API_VERSION

Json = dict[str, Any]
_READ = ("get", "list")
_ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def timestamp(seconds: float) -> str:
    """Return RFC 3339 in UTC with whole seconds, as Kubernetes does."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def obj(stored: StoredObject) -> Json:
    """Return an object in Kubernetes' format, without empty parts."""
    as_json: Json = {
        "apiVersion": API_VERSION,
        "kind": stored.kind,
        "metadata": metadata(stored),
        "spec": dict(stored.spec),
    }
    if stored.status:
        as_json["status"] = dict(stored.status) | _phase(stored)
    return as_json


def _phase(stored: StoredObject) -> Json:
    """Return the phase, computed from the conditions: it is never stored, and decides nothing."""
    return {"phase": status_word(stored)} if stored.kind == SANDBOX.name else {}


def object_json(kind: Kind, stored: StoredObject) -> Json:
    """Return an object in its kind's format: a flat kind has its spec fields at the top level."""
    if not kind.flat:
        return obj(stored)
    return {"apiVersion": API_VERSION, "kind": stored.kind, "metadata": metadata(stored), **stored.spec}


def metadata(stored: StoredObject) -> Json:
    """Return an object's metadata, in the order in which people read it."""
    deleted = None if stored.deleted_at is None else timestamp(stored.deleted_at)
    fields = {
        "name": stored.name,
        "namespace": stored.namespace,
        "labels": dict(stored.labels),
        "annotations": dict(stored.annotations),
        "uid": stored.uid,
        "resourceVersion": str(stored.resource_version),
        "generation": stored.generation,
        "creationTimestamp": timestamp(stored.created_at) if stored.created_at else "",
        "deletionTimestamp": deleted,
        "finalizers": list(stored.finalizers),
        "ownerReferences": [dict(reference) for reference in stored.owner_references],
    }
    return {key: value for key, value in fields.items() if value}


def list_head(kind: str, revision: int, continue_token: str = "") -> Json:
    """Return a list of one kind without its items. `continue_token` is the token of the next page, if there is one."""
    return {"apiVersion": API_VERSION, "kind": f"{kind}List", "metadata": list_metadata(revision, continue_token)}


def list_metadata(revision: int, continue_token: str = "") -> Json:
    """Return a list's metadata: the revision it was read at, and the token of its next page."""
    return {"resourceVersion": str(revision)} | ({"continue": continue_token} if continue_token else {})


def resource(kind: Kind) -> Json:
    """Return a kind's discovery entry. `readOnly` gives the reason and the alternative for a read-only kind."""
    entry = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "shortNames": list(kind.short_names),
        "kind": kind.name,
        "namespaced": kind.namespaced,
        "verbs": list(_verbs(kind)),
        **({} if kind.read_only or not kind.namespaced else {"categories": ["all"]}),  # what `get all` shows
    }
    return entry | {"readOnly": kind.read_only} if kind.read_only else entry


def _verbs(kind: Kind) -> tuple[str, ...]:
    if not kind.read_only:
        return _ALL
    return (*(("delete",) if kind.deletable else ()), *_READ, *(("patch",) if kind.patchable else ()))


def applied(kind: Kind, stored: StoredObject, result: str) -> Json:
    """Return one result of `apply`. `resource` is the name that kubectl prints (`sandbox.paddock`)."""
    return {
        "kind": kind.name,
        "plural": kind.plural,
        "resource": f"{kind.name.lower()}.{API_GROUP}",
        "metadata": {
            key: value
            for key, value in metadata(stored).items()
            if key in ("name", "namespace", "uid", "resourceVersion", "generation")
        },
        "result": result,
    }


def status(reason: str, code: int, message: str, *, details: Json | None = None) -> Json:
    """Return a Kubernetes Status error body."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body |= {"message": message, "reason": reason, "code": code}
    if details:
        body["details"] = details
    return body


def failure(error: ServiceError) -> Json:
    """Return the error body of a ServiceError."""
    details: Json = dict(error.details)
    if error.causes:
        details["causes"] = [dict(problem) for problem in error.causes]
    return status(error.reason, error.code, str(error), details=details)
