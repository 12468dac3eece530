"""Response models for /openapi.json. service/objects/serialize.py makes the answers; a fuzzer compares the two."""

from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model

from controller.kinds.base import Name
from controller.kinds.registry import Kind
from controller.service.errors import ServiceError
from controller.version import API_VERSION

# Routers carry the prefix themselves: then a route's path is its whole template, for metrics.
PREFIX = f"/apis/{API_VERSION}"

Version = Literal["paddock/v1alpha1"]
assert Version.__args__ == (API_VERSION,)  # type: ignore[attr-defined]


class Shape(BaseModel):
    """A part of an answer; later versions may add fields."""

    model_config = ConfigDict(extra="allow")


class StatusCause(Shape):
    """One of several reasons, with the field and, for text that was sent, the place."""

    reason: str = ""
    message: str = ""
    field: str = ""
    file: str = ""
    line: int = 0
    column: int = 0


class StatusDetails(Shape):
    """What an error is about."""

    kind: str = ""
    name: str = ""
    causes: list[StatusCause] = []


class Status(Shape):
    """Every error is one of these, as in Kubernetes."""

    kind: Literal["Status"]
    apiVersion: Literal["v1"]
    metadata: dict[str, Any]
    status: Literal["Failure", "Success"]
    message: str
    reason: str
    code: int
    details: StatusDetails | None = None


class ObjectMeta(Shape):
    """Who an object is. What is empty is left out. Times are RFC 3339 in UTC."""

    name: str
    namespace: str = ""
    uid: str
    resourceVersion: str
    generation: int = 1
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creationTimestamp: str = ""
    deletionTimestamp: str = ""
    finalizers: list[str] = []
    ownerReferences: list[dict[str, Any]] = []


class WrittenMeta(Shape):
    """Who an object is to be. `resourceVersion` is required to replace an object, and left out to create one."""

    name: Name
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resourceVersion: str | None = None
    uid: str | None = None


class ListMeta(Shape):
    """`resourceVersion` is the revision a list was read at: where a watch of it starts."""

    resourceVersion: str = ""


class Condition(Shape):
    """One statement about an object. `lastTransitionTime` moves only when `status` does."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    observedGeneration: int = 0
    lastTransitionTime: str = ""


class ObjectStatus(Shape):
    """What was observed of an object, and for which generation of its spec."""

    observedGeneration: int = 0
    conditions: list[Condition] = []


class TableColumn(Shape):
    """`priority` above 0: shown by `-o wide` only."""

    name: str
    type: str
    priority: int


class TableRow(Shape):
    """The cells of one object, in the order of the columns."""

    cells: list[str]
    object: dict[str, Any]


class Table(Shape):
    """Objects as rows, for those who accept `application/json;as=Table`."""

    apiVersion: Version
    kind: Literal["Table"]
    metadata: ListMeta
    columnDefinitions: list[TableColumn]
    rows: list[TableRow]


class ApiResource(Shape):
    """A kind, and the words for it. `readOnly` says why it takes no writes, and what to do instead."""

    name: str
    singularName: str
    shortNames: list[str]
    kind: str
    namespaced: bool
    verbs: list[str]
    readOnly: str = ""


class ApiResourceList(Shape):
    """The kinds that are served."""

    kind: Literal["APIResourceList"]
    groupVersion: Version
    resources: list[ApiResource]


class AppliedItem(Shape):
    """What became of one document."""

    kind: str
    plural: str
    resource: str
    metadata: dict[str, Any]
    result: str


class ApplyResult(Shape):
    """What became of the documents, in their order."""

    apiVersion: Version
    kind: Literal["ApplyResult"]
    items: list[AppliedItem]


class BookmarkMeta(Shape):
    """How far everything was told."""

    resourceVersion: str


class Bookmark(Shape):
    """What a BOOKMARK carries instead of an object."""

    apiVersion: Version
    kind: str
    metadata: BookmarkMeta


class VersionInfo(Shape):
    """Which Paddock answers."""

    version: str
    apiVersion: Version
    python: str


@cache
def object_model(kind: Kind) -> type[BaseModel]:
    """An object of that kind: its spec is the kind's own model, and so is its status, if there is one."""
    if kind.flat:
        return _flat_model(kind)
    status: Any = kind.status or ObjectStatus
    parts = {"metadata": (ObjectMeta, ...), "spec": (kind.spec, ...), "status": (status | None, None)}
    return _model(kind.name, kind.spec.__doc__ or f"A {kind.name}.", kind.name, parts)


@cache
def written_model(kind: Kind) -> type[BaseModel]:
    """What is sent to create or replace one: what only the server sets may be there, and is not read."""
    parts = {"metadata": (WrittenMeta, ...), "spec": (kind.spec, ...), "status": (Any, None)}
    return _model(f"{kind.name}Written", f"A {kind.name} as it is to be.", kind.name, parts)


@cache
def list_model(kind: Kind) -> type[BaseModel]:
    """A list of objects of that kind."""
    items: Any = list[object_model(kind)]  # type: ignore[misc]
    name, text = f"{kind.name}List", f"{kind.plural}, in order of namespace and name."
    return _model(name, text, name, {"metadata": (ListMeta, ...), "items": (items, ...)})


@cache
def watch_model(kind: Kind) -> type[BaseModel]:
    """One line of a watch."""
    fields: dict[str, Any] = {
        "type": (Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"], ...),
        "object": (object_model(kind) | Table | Bookmark | Status, ...),
    }
    text = "One line of a watch. BOOKMARK: `object` only says how far it is; ERROR: `object` is a Status."
    return create_model(f"{kind.name}WatchEvent", __base__=Shape, __doc__=text, **fields)


def _flat_model(kind: Kind) -> type[BaseModel]:
    """An object whose fields stand at the top."""
    head: dict[str, Any] = {"apiVersion": (Version, ...), "kind": (Literal[kind.name], ...)}
    head["metadata"] = (ObjectMeta, ...)
    return create_model(kind.name, __base__=kind.spec, __doc__=kind.spec.__doc__, **head)


def _model(name: str, text: str, kind: str, parts: dict[str, Any]) -> type[BaseModel]:
    head: dict[str, Any] = {"apiVersion": (Version, ...), "kind": (Literal[kind], ...)}
    return create_model(name, __base__=Shape, __doc__=text, **head, **parts)


def failures(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """The descriptions of these errors, and of every other one. openapi.py says that each is a Status: once, not here
    for each error of each route, where FastAPI would make a validator of it that nothing asks."""
    found: dict[int | str, dict[str, Any]] = {}
    for each in errors:
        text = (each.__doc__ or "").strip().split("\n")[0] or each.reason
        known = found.get(each.code)
        found[each.code] = {"description": f"{known['description']} {text}" if known else text}
    return {**found, "default": {"description": "Any other error."}}
