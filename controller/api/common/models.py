"""Response models for /openapi.json. service/listing/serialize.py makes the responses; a fuzzer compares the two."""

from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from controller.kinds.base import Name
from controller.kinds.registry import Kind
from controller.service.errors import ServiceError
from controller.version import API_VERSION

# Routers carry the prefix themselves: then a route's path is its whole template, for metrics.
MCP_PATH, SERVERS_PATH, VERSION_PATH = "/mcp", "/mcp/servers", "/version"
PREFIX = f"/apis/{API_VERSION}"
SERVER_PATH = f"{PREFIX}/namespaces/{{namespace}}/mcpservers/{{name}}/mcp"

Version = Literal["paddock/v1alpha1"]
assert Version.__args__ == (API_VERSION,)  # type: ignore[attr-defined]


class Shape(BaseModel):
    """A part of a response; later versions may add fields."""

    model_config = ConfigDict(extra="allow")


class StatusCause(Shape):
    """One cause of an error, with its field and its position in the sent text."""

    reason: str = ""
    message: str = ""
    field: str = ""
    file: str = ""
    line: int = 0
    column: int = 0


class StatusDetails(Shape):
    """The object and causes of an error."""

    kind: str = ""
    name: str = ""
    causes: list[StatusCause] = []


class Status(Shape):
    """The body of every error, as in Kubernetes."""

    kind: Literal["Status"]
    apiVersion: Literal["v1"]
    metadata: dict[str, Any]
    status: Literal["Failure", "Success"]
    message: str
    reason: str
    code: int
    details: StatusDetails | None = None


class ObjectMeta(Shape):
    """Metadata of an object. Empty fields are omitted. Times are RFC 3339 in UTC."""

    name: str
    """Name."""
    namespace: str = ""
    """Namespace; empty: its kind has none."""
    uid: str
    """Id that no other object ever has."""
    resourceVersion: str
    """Version of the object; each write makes a new one."""
    generation: int = 1
    """Number of the spec's last change."""
    labels: dict[str, str] = {}
    """Labels, by which objects are selected."""
    annotations: dict[str, str] = {}
    """Further facts, for people and tools."""
    creationTimestamp: str = ""
    """Time of creation."""
    deletionTimestamp: str = ""
    """Time at which its deletion was asked for."""
    finalizers: list[str] = []
    """Reasons why it is not removed yet."""
    ownerReferences: list[dict[str, Any]] = []
    """Objects with which it is deleted."""


class WrittenMeta(Shape):
    """Metadata of a written object. `resourceVersion` is required to replace an object and omitted to create one."""

    name: Name
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resourceVersion: str | None = None
    uid: str | None = None


class ListMeta(Shape):
    """Metadata of a list. A watch of it starts at `resourceVersion`, the revision it was read at.

    `continue` is there if the list was cut at `limit`: sent as a query parameter, it gives the next page.
    """

    resourceVersion: str = ""
    rest: str = Field(default="", alias="continue")


class Condition(Shape):
    """One statement about an object. `lastTransitionTime` moves only when `status` does."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    observedGeneration: int = 0
    lastTransitionTime: str = ""


class ObjectStatus(Shape):
    """Observed state of an object, and the generation of its spec that it belongs to."""

    observedGeneration: int = 0
    conditions: list[Condition] = []


class MissingHost(Shape):
    """A host whose daemon gave no answer, and why."""

    host: str
    message: str


class TableColumn(Shape):
    """A column. With a `priority` above 0 it is shown by `-o wide` only."""

    name: str
    type: str
    priority: int


class TableRow(Shape):
    """The cells of one object, in the order of the columns."""

    cells: list[str]
    object: dict[str, Any]


class Table(Shape):
    """Objects as rows, for clients that accept `application/json;as=Table`."""

    apiVersion: Version
    kind: Literal["Table"]
    metadata: ListMeta
    columnDefinitions: list[TableColumn]
    rows: list[TableRow]


class ApiResource(Shape):
    """A kind and its names. `readOnly` says why it accepts no writes, and what to do instead."""

    name: str
    singularName: str
    shortNames: list[str]
    kind: str
    namespaced: bool
    verbs: list[str]
    categories: list[str] = []
    readOnly: str = ""


class ApiResourceList(Shape):
    """The served kinds."""

    kind: Literal["APIResourceList"]
    groupVersion: Version
    resources: list[ApiResource]


class AppliedItem(Shape):
    """Result of one document."""

    kind: str
    plural: str
    resource: str
    metadata: dict[str, Any]
    result: str


class ApplyResult(Shape):
    """Results of the documents, in order."""

    apiVersion: Version
    kind: Literal["ApplyResult"]
    items: list[AppliedItem]


class DoctorFinding(Shape):
    """One check of the host. `meaning` and `action` are empty if all is well."""

    check: str
    grade: Literal["ok", "warning", "problem"]
    found: str
    meaning: str
    action: str


class DoctorReport(Shape):
    """Findings of `paddock doctor`, in its order."""

    apiVersion: Version
    kind: Literal["DoctorReport"]
    items: list[DoctorFinding]


class BookmarkMeta(Shape):
    """The revision up to which every event was sent."""

    resourceVersion: str


class Bookmark(Shape):
    """The object of a BOOKMARK event."""

    apiVersion: Version
    kind: str
    metadata: BookmarkMeta


class VersionInfo(Shape):
    """Version of the daemon. `e2b` is the URL of its listener for clients of E2B; left out: there is none."""

    version: str
    apiVersion: Version
    python: str
    major: str
    minor: str
    gitVersion: str = Field(description="the version, as kubectl reads it")
    e2b: str = Field(default="", description="URL of the listener for clients of E2B")


@cache
def object_model(kind: Kind) -> type[BaseModel]:
    """Return the model of an object: with the kind's own models of spec and status."""
    if kind.flat:
        return _flat_model(kind)
    status: Any = kind.status or ObjectStatus
    parts = {"metadata": (ObjectMeta, ...), "spec": (kind.spec, ...), "status": (status | None, None)}
    return _model(kind.name, kind.spec.__doc__ or f"A {kind.name}.", kind.name, parts)


@cache
def written_model(kind: Kind) -> type[BaseModel]:
    """Return the model of a written object: fields that only the server sets are accepted and ignored."""
    parts = {"metadata": (WrittenMeta, ...), "spec": (kind.spec, ...), "status": (Any, None)}
    return _model(f"{kind.name}Written", f"A {kind.name} to create or replace.", kind.name, parts)


@cache
def list_model(kind: Kind) -> type[BaseModel]:
    """Return the model of a list of that kind."""
    items: Any = list[object_model(kind)]  # type: ignore[misc]
    name, text = f"{kind.name}List", f"{kind.plural}, in order of namespace and name."
    parts: dict[str, Any] = {"metadata": (ListMeta, ...), "items": (items, ...)}
    if kind.by_host:
        text = f"{text} Those of hosts that are `missing` are not in it. That is left out where there is one host."
        parts["missing"] = (list[MissingHost] | None, None)
    return _model(name, text, name, parts)


@cache
def watch_model(kind: Kind) -> type[BaseModel]:
    """Return the model of one line of a watch."""
    fields: dict[str, Any] = {
        "type": (Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"], ...),
        "object": (object_model(kind) | Table | Bookmark | Status, ...),
    }
    text = "One line of a watch. BOOKMARK: `object` has only a resourceVersion; ERROR: `object` is a Status."
    return create_model(f"{kind.name}WatchEvent", __base__=Shape, __doc__=text, **fields)


def _flat_model(kind: Kind) -> type[BaseModel]:
    """Return the model of an object without spec and status, whose fields are at the top level."""
    head: dict[str, Any] = {"apiVersion": (Version, ...), "kind": (Literal[kind.name], ...)}
    head["metadata"] = (ObjectMeta, ...)
    return create_model(kind.name, __base__=kind.spec, __doc__=kind.spec.__doc__, **head)


def _model(name: str, text: str, kind: str, parts: dict[str, Any]) -> type[BaseModel]:
    head: dict[str, Any] = {"apiVersion": (Version, ...), "kind": (Literal[kind], ...)}
    return create_model(name, __base__=Shape, __doc__=text, **head, **parts)


def failures(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of these errors and of any other.

    openapi.py adds the schema Status once. Given here, FastAPI would build an unused validator for each of them.
    """
    descriptions: dict[int | str, dict[str, Any]] = {}
    for error_class in errors:
        text = (error_class.__doc__ or "").strip().split("\n")[0] or error_class.reason
        former = descriptions.get(error_class.code)
        descriptions[error_class.code] = {"description": f"{former['description']} {text}" if former else text}
    return {**descriptions, "default": {"description": "Any other error."}}
