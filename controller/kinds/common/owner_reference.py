"""Owner references, and references by name (a kind's `referenced_by`). Both order the deletion of objects."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from controller.kinds.base import Flag, Model, Name, Text
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Registry

# An owner that is deleted in the foreground keeps this until its dependents are gone.
FOREGROUND_FINALIZER = "foregroundDeletion"
# An object whose users are all being deleted keeps this, once it is deleted too, until they are gone.
IN_USE_FINALIZER = "paddock/in-use"
# An object whose work must end before it is deleted keeps this until then.
ENDING_FINALIZER = "paddock/ending"
MOST_OWNERS = 16
Propagation = Literal["Background", "Foreground", "Orphan"]


class OwnerReference(Model):
    """An owner in the same namespace, or on the host. `uid`, if given, must be the owner's; else it is filled in."""

    api_version: Literal["paddock/v1alpha1"] = "paddock/v1alpha1"
    """API version of the owner."""
    kind: Text
    """Kind of the owner."""
    name: Name
    """Name of the owner, in the same namespace or on the host."""
    uid: Text | None = None
    """UID of the owner, filled in if left out. If given, the change is refused unless the owner still has it."""
    controller: Flag | None = None
    """True if the owner manages this object; at most one owner does. Paddock does not use it."""
    block_owner_deletion: Flag | None = None
    """Set to false to let a foreground deletion of the owner finish without waiting for this object.

    Only those who may write the owner may make it wait.
    """


def owner_uids(obj: StoredObject) -> tuple[str, ...]:
    """Return the uids of an object's owners."""
    return tuple(str(owner.get("uid", "")) for owner in obj.owner_references)


def blocking_uids(obj: StoredObject) -> tuple[str, ...]:
    """Return the uids of the owners whose foreground deletion waits for this object."""
    return tuple(
        str(owner.get("uid", "")) for owner in obj.owner_references if owner.get("blockOwnerDeletion") is not False
    )


def owner_key(reference: Mapping[str, Any], namespace: str, registry: Registry) -> tuple[str, str, str] | None:
    """Return the store key of an object's owner; None for a kind that this version does not know."""
    kind = registry.by_name(str(reference.get("kind", "")))
    if kind is None:
        return None
    return kind.name, namespace if kind.namespaced else "", str(reference.get("name", ""))


def used_keys(obj: StoredObject, registry: Registry) -> Iterator[tuple[str, str, str]]:
    """Yield the store keys of the objects that an object refers to by name."""
    for kind in registry:
        for reference in kind.referenced_by:
            name = reference.names(obj) if reference.kind == obj.kind else ""
            if name:
                yield kind.name, obj.namespace if kind.namespaced else "", name
