"""Garbage collection of objects: delete dependents without owners, remove finalizers that wait for others.

A deletion through the API cascades in its own transaction. This handles the rest: owners in foreground deletion,
objects whose users are still being deleted, and objects whose owner went in any other way. Level-triggered. Objects
are read again in the transaction that writes; an owner of an unknown kind never counts as gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from controller.kinds.common.owner_reference import (
    FOREGROUND_FINALIZER,
    IN_USE_FINALIZER,
    blocking_uids,
    owner_key,
    owner_uids,
    used_keys,
)
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Registry
from controller.ports import Change, Store, Transaction

_log = structlog.get_logger("paddock.garbage")
_Key = tuple[str, str, str]


class GarbageCollector:
    """Index of owned objects and of those whose deletion waits for others, kept from the store's changes."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store, self._registry = store, registry
        self._owned: dict[str, StoredObject] = {}
        self._dependents: dict[str, set[str]] = {}  # uids by their owner's uid
        self._terminating: dict[str, tuple[_Key, ...]] = {}  # names that each object being deleted refers to
        self._users: dict[_Key, set[str]] = {}  # the same, by the name referred to
        self._waiting: dict[str, StoredObject] = {}
        self._suspects: set[str] = set()

    def relist(self, objects: Iterable[StoredObject]) -> None:
        """Take in all objects of every kind; every owned one is checked once."""
        self._owned = {}
        self._dependents = {}
        self._waiting = {}
        self._suspects = set()
        self._terminating, self._users = {}, {}
        for stored in objects:
            self._note(stored)

    def take_in(self, changes: Iterable[Change]) -> None:
        """Apply changes from the watch log; idempotent."""
        for change in changes:
            if change.type == "DELETED":
                self._forget(change.obj.uid)
                self._suspects |= self._dependents.get(change.obj.uid, set())
            else:
                self._note(change.obj)

    def collect(self, now: float) -> bool:
        """Write what is due; return True if anything was written. `now` is Unix seconds. Raises StoreError."""
        done = [(waiting, over) for waiting in self._waiting.values() if (over := self._over(waiting))]
        suspects = [self._owned[uid] for uid in sorted(self._suspects) if uid in self._owned]
        if not done and not suspects:
            self._suspects = set()
            return False
        with self._store.transaction() as transaction:
            wrote = [self._judge(transaction, suspect, now) for suspect in suspects]
            wrote += [self._remove_finalizers(transaction, obj, over) for obj, over in done]
        self._suspects = set()
        return any(wrote)

    def _is_held(self, uid: str) -> bool:
        """Return True if an owner has dependents that its deletion waits for."""
        return any(uid in blocking_uids(self._owned[dependent]) for dependent in self._dependents.get(uid, ()))

    def _forget(self, uid: str) -> None:
        stored = self._owned.pop(uid, None)
        for owner in owner_uids(stored) if stored else ():
            self._dependents[owner].discard(uid)
            if not self._dependents[owner]:
                del self._dependents[owner]
        for key in self._terminating.pop(uid, ()):
            self._users[key].discard(uid)
            if not self._users[key]:
                del self._users[key]
        self._waiting.pop(uid, None)

    def _note(self, obj: StoredObject) -> None:
        former = self._owned.get(obj.uid)
        self._forget(obj.uid)
        if obj.owner_references:
            self._owned[obj.uid] = obj
            for owner in owner_uids(obj):
                self._dependents.setdefault(owner, set()).add(obj.uid)
            if former is None or former.owner_references != obj.owner_references:
                self._suspects.add(obj.uid)
        if obj.deleted_at is None:
            return
        self._terminating[obj.uid] = tuple(dict.fromkeys(used_keys(obj, self._registry)))
        for key in self._terminating[obj.uid]:
            self._users.setdefault(key, set()).add(obj.uid)
        if not {FOREGROUND_FINALIZER, IN_USE_FINALIZER}.isdisjoint(obj.finalizers):
            self._waiting[obj.uid] = obj

    def _over(self, obj: StoredObject) -> frozenset[str]:
        """Return the finalizers of a waiting object that can be removed."""
        removable = set()
        if FOREGROUND_FINALIZER in obj.finalizers and not self._is_held(obj.uid):
            removable.add(FOREGROUND_FINALIZER)
        if IN_USE_FINALIZER in obj.finalizers and not self._users.get((obj.kind, obj.namespace, obj.name)):
            removable.add(IN_USE_FINALIZER)
        return frozenset(removable)

    def _judge(self, transaction: Transaction, suspect: StoredObject, now: float) -> bool:
        """Request the deletion of an object without owners; else drop references to owners that are gone."""
        current = _again(transaction, suspect)
        if current is None or current.deleted_at is not None:
            return False
        remaining = tuple(
            reference for reference in current.owner_references if not self._is_gone(transaction, current, reference)
        )
        if len(remaining) == len(current.owner_references):
            return False
        if remaining:
            transaction.put(replace(current, owner_references=remaining))
            return True
        _log.info("deletion requested: all owners gone", object=str(current.ref))
        if current.finalizers:
            transaction.put(replace(current, deleted_at=now))
        else:
            transaction.remove(current)
        return True

    def _is_gone(self, transaction: Transaction, obj: StoredObject, reference: Mapping[str, Any]) -> bool:
        key = owner_key(reference, obj.namespace, self._registry)
        owner = transaction.get(*key) if key else None
        return key is not None and (owner is None or owner.uid != reference.get("uid"))

    def _remove_finalizers(self, transaction: Transaction, waiting: StoredObject, over: frozenset[str]) -> bool:
        """Remove finalizers that are due; with the last one the object is deleted."""
        current = _again(transaction, waiting)
        if FOREGROUND_FINALIZER in over and any(
            waiting.uid in blocking_uids(dependent) for dependent in transaction.owned()
        ):
            over -= {FOREGROUND_FINALIZER}
        if current is None or over.isdisjoint(current.finalizers):
            return False
        remaining = tuple(finalizer for finalizer in current.finalizers if finalizer not in over)
        if remaining:
            transaction.put(replace(current, finalizers=remaining))
        else:
            transaction.remove(current)
        return True


def _again(transaction: Transaction, stored: StoredObject) -> StoredObject | None:
    """Return the object as stored now; None if it is gone, or its name is another object's."""
    current = transaction.get(stored.kind, stored.namespace, stored.name)
    return current if current is not None and current.uid == stored.uid else None
