"""Volumes on this host, with the objects that use them. The only source that deletes."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.volume import HostVolume
from controller.policy.volumes import User, Users, deleted_with_last_user
from controller.ports import Clock, Store, Transaction, VolumeInUse, Volumes, VolumesUnreachable
from controller.ports.place import ALONE, Place
from controller.service import errors
from controller.service.access.audit import entry
from controller.service.objects.field_selector import FieldSelector

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

    def __init__(self, store: Store, volumes: Volumes, clock: Clock, place: Place = ALONE) -> None:
        """`place` is this host among those of the store."""
        self._store, self._volumes, self._clock, self._place = store, volumes, clock, place

    def get(self, namespace: str, name: str) -> StoredObject | None:
        found = self._found(namespace, name)
        return None if found is None else self._object(found, self._users([namespace])[namespace].of(found))

    def list(self, namespace: str | None, asked: FieldSelector, limit: int) -> Sequence[StoredObject]:  # noqa: ARG002 - few enough
        with _errors_translated():
            found = self._volumes.list(namespace)
        users = self._users({each.namespace for each in found})
        return [self._object(each, users[each.namespace].of(each)) for each in found]

    def delete(self, namespace: str, name: str) -> StoredObject | None:
        """Delete the volume; return it as it was, or None. Raises Conflict with its users."""
        found = self._found(namespace, name)
        if found is None:
            return None
        unused = not self._users([namespace])[namespace].of(found)
        with _errors_translated():  # not called if it has users: it may block
            mounted = found.mounted and unused and self._volumes.is_mounted(namespace, name)
        with self._store.transaction() as transaction:
            users = self._all_users(transaction, namespace).of(found)
            if users:
                raise _in_use(found, users)
            if mounted:
                raise _mounted(found)
            detail = {"size": format_bytes(found.size_bytes)}
            detail |= {"sandbox": found.claimed_by} if found.claimed_by else {}
            made = entry(
                self._clock, "delete", kind="Volume", namespace=namespace, name=name, uid=found.uid, detail=detail
            )
            transaction.audit(made)
        # Not in the transaction: it may wait for a mount, and would block all writers.
        with _errors_translated():
            try:
                self._volumes.remove(namespace, name)
            except VolumeInUse as error:
                raise _mounted(found) from error
        return self._object(found, ())

    def _found(self, namespace: str, name: str) -> HostVolume | None:
        with _errors_translated():
            return next((each for each in self._volumes.list(namespace) if each.name == name), None)

    def _users(self, namespaces: Iterable[str]) -> dict[str, Users]:
        return {each: self._users_of(self._store.list(kind, each)[0] for kind in _NAMING) for each in namespaces}

    def _all_users(self, transaction: Transaction, namespace: str) -> Users:
        return self._users_of(transaction.list(kind, namespace) for kind in _NAMING)

    def _users_of(self, naming: Iterable[Sequence[StoredObject]]) -> Users:
        """Return the users among objects that name volumes: those of other hosts name other volumes."""
        here = (UNBOUND, self._place.host)
        return Users(*([each for each in some if host_of(each, self._place.default) in here] for some in naming))

    def _object(self, found: HostVolume, users: Sequence[User]) -> StoredObject:
        made = _object(found, users)
        return made if self._place.alone else replace(made, status={"host": self._place.host, **made.status})


@contextmanager
def _errors_translated() -> Iterator[None]:
    try:
        yield
    except VolumesUnreachable as error:
        raise errors.ServiceUnavailable(str(error)) from error


def _in_use(found: HostVolume, users: Sequence[User]) -> errors.Conflict:
    shown = ", ".join(map(str, users[:_SHOWN])) + (f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else "")
    message = f"volume `{found.name}` is used by {shown}; delete or change those first"
    return errors.Conflict(message, kind="volumes", name=found.name)


def _mounted(found: HostVolume) -> errors.Conflict:
    message = f"volume `{found.name}` is still mounted in a container; try again once that is deleted or recreated"
    return errors.Conflict(message, kind="volumes", name=found.name)


def _object(found: HostVolume, users: Sequence[User]) -> StoredObject:
    spec: dict[str, Any] = {
        "size": format_bytes(found.size_bytes),
        "reclaimPolicy": "Delete" if deleted_with_last_user(users) else "Retain",
    }
    status: dict[str, Any] = {"phase": "Bound" if users or found.mounted else "Released", "mounted": found.mounted}
    if found.used_bytes is not None:
        status["used"] = format_bytes(found.used_bytes)
    if users:
        status["usedBy"] = [{"kind": each.kind, "name": each.name} for each in users]
    return StoredObject(
        kind="Volume",
        namespace=found.namespace,
        name=found.name,
        uid=found.uid,
        generation=0,
        created_at=found.made_at,
        spec=spec | ({"sandbox": found.claimed_by} if found.claimed_by else {}),
        status=status,
    )
