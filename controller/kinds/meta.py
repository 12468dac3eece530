"""What every stored object carries, whatever its kind: identity, versions, ownership, conditions, events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Which object something is about. `namespace` is empty for kinds that belong to the host."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return "/".join(each for each in (self.kind.lower(), self.namespace, self.name) if each)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One API object as the store keeps it. `spec`, `last_applied` and `status` are plain JSON values.

    Times are Unix seconds. `last_applied` is what the last `apply` sent (None: never applied). `deleted_at` set
    means that deletion was asked for and waits for `finalizers` to become empty.
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


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a status, as it is computed; when it last changed is found from what was stored before."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling the user about an object. Equal events are counted by the store, not repeated."""

    ref: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    at: float
    count: int = 1
    first_at: float = 0.0
