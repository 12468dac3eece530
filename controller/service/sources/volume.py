"""Volumes on this host, with the objects that use them. The only source that deletes."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import StoredObject
from controller.kinds.volume import HostVolume
from controller.policy.container.volumes import User, Users, deleted_with_last_user
from controller.ports import Clock, Store, Transaction, VolumeInUse, Volumes, VolumesUnreachable
from controller.ports.fleet import SINGLE, Fleet
from controller.service import errors
from controller.service.access.audit import entry
from controller.service.listing.field_selector import FieldSelector

_NAMING = ("Sandbox", "SandboxTemplate", "SandboxPool")
_SHOWN = 5


class NoVolumes:
    """ports.Volumes of a daemon without volumes."""

    def list(self, namespace: str | None = None) -> Sequence[HostVolume]:  # noqa: ARG002 - there are none anywhere
        return ()

    def is_mounted(self, namespace: str, name: str) -> bool:  # noqa: ARG002 - there are none
        return False

    def remove(self, namespace: str, name: str) -> None:
        """Do nothing."""


class VolumeSource:
    """ports.Volumes as objects. A deletion is audited in the transaction that finds no users of the volume."""

    def __init__(self, store: Store, volumes: Volumes, clock: Clock, place: Fleet = SINGLE) -> None:
        """`place` is this host among those of the store."""
        self._store, self._volumes, self._clock, self._place = store, volumes, clock, place

    def get(self, namespace: str, name: str) -> StoredObject | None:
        volume = self._volume_of(namespace, name)
        return None if volume is None else self._object(volume, self._users([namespace])[namespace].of(volume))

    def list(self, namespace: str | None, by_fields: FieldSelector, limit: int) -> Sequence[StoredObject]:  # noqa: ARG002 - few enough
        with _translate_errors():
            volumes = self._volumes.list(namespace)
        users = self._users({volume.namespace for volume in volumes})
        return [self._object(volume, users[volume.namespace].of(volume)) for volume in volumes]

    def delete(self, namespace: str, name: str) -> StoredObject | None:
        """Delete the volume; return it as it was, or None. Raises Conflict with its users."""
        volume = self._volume_of(namespace, name)
        if volume is None:
            return None
        unused = not self._users([namespace])[namespace].of(volume)
        with _translate_errors():  # not called if it has users: it may block
            mounted = volume.mounted and unused and self._volumes.is_mounted(namespace, name)
        with self._store.transaction() as transaction:
            users = self._all_users(transaction, namespace).of(volume)
            if users:
                raise _in_use(volume, users)
            if mounted:
                raise _mounted(volume)
            detail = {"size": format_bytes(volume.size_bytes)}
            detail |= {"sandbox": volume.claimed_by} if volume.claimed_by else {}
            audit_entry = entry(
                self._clock, "delete", kind="Volume", namespace=namespace, name=name, uid=volume.uid, detail=detail
            )
            transaction.audit(audit_entry)
        # Not in the transaction: it may wait for a mount, and would block all writers.
        with _translate_errors():
            try:
                self._volumes.remove(namespace, name)
            except VolumeInUse as error:
                raise _mounted(volume) from error
        return self._object(volume, ())

    def _volume_of(self, namespace: str, name: str) -> HostVolume | None:
        with _translate_errors():
            return next((volume for volume in self._volumes.list(namespace) if volume.name == name), None)

    def _users(self, namespaces: Iterable[str]) -> dict[str, Users]:
        return {
            namespace: self._users_of(self._store.list(kind, namespace)[0] for kind in _NAMING)
            for namespace in namespaces
        }

    def _all_users(self, transaction: Transaction, namespace: str) -> Users:
        return self._users_of(transaction.list(kind, namespace) for kind in _NAMING)

    def _users_of(self, naming: Iterable[Sequence[StoredObject]]) -> Users:
        """Return the users among objects that name volumes: those of other hosts name other volumes."""
        return Users(*([obj for obj in some if not self._place.is_elsewhere(obj)] for some in naming))

    def _object(self, volume: HostVolume, users: Sequence[User]) -> StoredObject:
        obj = _object(volume, users)
        return replace(obj, status={**self._place.binding(self._place.host), **obj.status})


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except VolumesUnreachable as error:
        raise errors.ServiceUnavailable(str(error)) from error


def _in_use(volume: HostVolume, users: Sequence[User]) -> errors.Conflict:
    user_names = ", ".join(map(str, users[:_SHOWN])) + (
        f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
    )
    message = f"volume `{volume.name}` is used by {user_names}; delete or change those first"
    return errors.Conflict(message, kind="volumes", name=volume.name)


def _mounted(volume: HostVolume) -> errors.Conflict:
    message = f"volume `{volume.name}` is still mounted in a container; try again once that is deleted or recreated"
    return errors.Conflict(message, kind="volumes", name=volume.name)


def _object(volume: HostVolume, users: Sequence[User]) -> StoredObject:
    spec: dict[str, Any] = {
        "size": format_bytes(volume.size_bytes),
        "reclaimPolicy": "Delete" if deleted_with_last_user(users) else "Retain",
    }
    status: dict[str, Any] = {"phase": "Bound" if users or volume.mounted else "Released", "mounted": volume.mounted}
    if volume.used_bytes is not None:
        status["used"] = format_bytes(volume.used_bytes)
    if users:
        status["usedBy"] = [{"kind": user.kind, "name": user.name} for user in users]
    return StoredObject(
        kind="Volume",
        namespace=volume.namespace,
        name=volume.name,
        uid=volume.uid,
        generation=0,
        created_at=volume.made_at,
        spec=spec | ({"sandbox": volume.claimed_by} if volume.claimed_by else {}),
        status=status,
    )
