"""What ties the deletion of objects together: owner references, and use by name (a kind's `referenced_by`)."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from controller.kinds.base import Flag, Model, Name, Text
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Registry

# An owner that is deleted in the foreground keeps this until its dependents are gone.
FOREGROUND_FINALIZER = "foregroundDeletion"
# An object whose users are all being deleted keeps this, once it is deleted too, until they are gone.
IN_USE_FINALIZER = "paddock/in-use"
MOST_OWNERS = 16
Propagation = Literal["Background", "Foreground", "Orphan"]


class OwnerReference(Model):
    """An object of the same namespace, or of the host. `uid`, where given, must be the owner's; it is filled in."""

    api_version: Literal["paddock/v1alpha1"] = "paddock/v1alpha1"
    """The version that the owner is written for."""
    kind: Text
    """The owner's kind."""
    name: Name
    """The owner's name, in the same namespace or on the host."""
    uid: Text | None = None
    """If given, the change is refused unless it is still the same owner; filled in if left out."""
    controller: Flag | None = None
    """Whether the owner manages this object; at most one does. Paddock does not read it."""
    block_owner_deletion: Flag | None = None
    """Whether the owner's deletion in the foreground waits for this object. It does unless this says false; only who
    may write the owner may have it wait.
    """


def owner_uids(obj: StoredObject) -> tuple[str, ...]:
    """The uids of an object's owners."""
    return tuple(str(each.get("uid", "")) for each in obj.owner_references)


def blocking_uids(obj: StoredObject) -> tuple[str, ...]:
    """The uids of the owners whose deletion in the foreground waits for this object."""
    return tuple(
        str(each.get("uid", "")) for each in obj.owner_references if each.get("blockOwnerDeletion") is not False
    )


def owner_key(reference: Mapping[str, Any], namespace: str, registry: Registry) -> tuple[str, str, str] | None:
    """Where the owner of an object of that namespace is stored; None for a kind that this version does not know."""
    kind = registry.by_name(str(reference.get("kind", "")))
    if kind is None:
        return None
    return kind.name, namespace if kind.namespaced else "", str(reference.get("name", ""))


def used_keys(obj: StoredObject, registry: Registry) -> Iterator[tuple[str, str, str]]:
    """Where the objects that an object refers to by name are stored."""
    for kind in registry:
        for reference in kind.referenced_by:
            name = reference.names(obj) if reference.kind == obj.kind else ""
            if name:
                yield kind.name, obj.namespace if kind.namespaced else "", name
