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
    """One API object as stored. Times are Unix seconds.

    `spec`, `last_applied` and `status` are plain JSON values.
    """

    kind: str
    """Kind, such as Sandbox."""
    namespace: str
    """Namespace; empty: its kind has none."""
    name: str
    """Name, unique in its kind and namespace."""
    uid: str
    """Unique id: another object of the same name has another one."""
    spec: Mapping[str, Any]
    """Desired state."""
    generation: int = 1
    """Counter of changes of the spec."""
    resource_version: int = 0
    """Counter of all changes, for compare-and-set and watches."""
    created_at: float = 0.0
    """Creation."""
    deleted_at: float | None = None
    """When its deletion was requested; it then waits for `finalizers` to become empty. None: it was not."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels, by which it is selected."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations, which nothing selects by."""
    finalizers: tuple[str, ...] = ()
    """Names of what must be cleared away before it may go."""
    owner_references: tuple[Mapping[str, Any], ...] = ()
    """Objects with which it is deleted."""
    last_applied: Mapping[str, Any] | None = None
    """Document of the last `apply`; None: it was never applied."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """Observed state."""

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
