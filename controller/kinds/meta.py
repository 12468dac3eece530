"""Data that every stored object carries: identity, versions, ownership, conditions, events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Reference to an object. `namespace` is empty for host-scoped kinds."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return "/".join(text for text in (self.kind.lower(), self.namespace, self.name) if text)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One API object as stored. `spec`, `last_applied` and `status` are plain JSON values.

    Times are Unix seconds. `last_applied` is the document of the last `apply` (None: never applied). If `deleted_at` is
    set, deletion was requested and waits for `finalizers` to become empty.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    spec: Mapping[str, Any]
    generation: int = 1
    resource_version: int = 0
    created_at: float = 0.0
    deleted_at: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[Mapping[str, Any], ...] = ()
    last_applied: Mapping[str, Any] | None = None
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.kind, self.namespace, self.name, self.uid)


def stored_condition(obj: StoredObject, type_: str) -> Mapping[str, Any]:
    """Return a condition of the object's status; empty if there is none."""
    condition: Mapping[str, Any] = next(
        (condition for condition in obj.status.get("conditions", ()) if condition.get("type") == type_), {}
    )
    return condition


@dataclass(frozen=True, slots=True)
class Condition:
    """One computed condition of a status. Its transition time is derived from the stored status."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event about an object, for users. The store counts equal events instead of repeating them."""

    ref: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    at: float
    count: int = 1
    first_at: float = 0.0
