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
        self._owned, self._dependents, self._waiting, self._suspects = {}, {}, {}, set()
        self._terminating, self._users = {}, {}
        for each in objects:
            self._note(each)

    def take_in(self, changes: Iterable[Change]) -> None:
        """Apply changes from the watch log; idempotent."""
        for each in changes:
            if each.type == "DELETED":
                self._forget(each.obj.uid)
                self._suspects |= self._dependents.get(each.obj.uid, set())
            else:
                self._note(each.obj)

    def collect(self, now: float) -> bool:
        """Write what is due; return True if anything was written. `now` is Unix seconds. Raises StoreError."""
        done = [(obj, over) for obj in self._waiting.values() if (over := self._over(obj))]
        suspects = [self._owned[uid] for uid in sorted(self._suspects) if uid in self._owned]
        if not done and not suspects:
            self._suspects = set()
            return False
        with self._store.transaction() as transaction:
            wrote = [self._judge(transaction, each, now) for each in suspects]
            wrote += [self._remove_finalizers(transaction, each, over) for each, over in done]
        self._suspects = set()
        return any(wrote)

    def _is_held(self, uid: str) -> bool:
        """Return True if an owner has dependents that its deletion waits for."""
        return any(uid in blocking_uids(self._owned[each]) for each in self._dependents.get(uid, ()))

    def _forget(self, uid: str) -> None:
        known = self._owned.pop(uid, None)
        for owner in owner_uids(known) if known else ():
            self._dependents[owner].discard(uid)
            if not self._dependents[owner]:
                del self._dependents[owner]
        for key in self._terminating.pop(uid, ()):
            self._users[key].discard(uid)
            if not self._users[key]:
                del self._users[key]
        self._waiting.pop(uid, None)

    def _note(self, obj: StoredObject) -> None:
        known = self._owned.get(obj.uid)
        self._forget(obj.uid)
        if obj.owner_references:
            self._owned[obj.uid] = obj
            for owner in owner_uids(obj):
                self._dependents.setdefault(owner, set()).add(obj.uid)
            if known is None or known.owner_references != obj.owner_references:
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
        found = set()
        if FOREGROUND_FINALIZER in obj.finalizers and not self._is_held(obj.uid):
            found.add(FOREGROUND_FINALIZER)
        if IN_USE_FINALIZER in obj.finalizers and not self._users.get((obj.kind, obj.namespace, obj.name)):
            found.add(IN_USE_FINALIZER)
        return frozenset(found)

    def _judge(self, transaction: Transaction, suspect: StoredObject, now: float) -> bool:
        """Request the deletion of an object without owners; else drop references to owners that are gone."""
        found = _again(transaction, suspect)
        if found is None or found.deleted_at is not None:
            return False
        left = tuple(each for each in found.owner_references if not self._is_gone(transaction, found, each))
        if len(left) == len(found.owner_references):
            return False
        if left:
            transaction.put(replace(found, owner_references=left))
            return True
        _log.info("deletion requested: all owners gone", object=str(found.ref))
        if found.finalizers:
            transaction.put(replace(found, deleted_at=now))
        else:
            transaction.remove(found)
        return True

    def _is_gone(self, transaction: Transaction, obj: StoredObject, reference: Mapping[str, Any]) -> bool:
        key = owner_key(reference, obj.namespace, self._registry)
        owner = transaction.get(*key) if key else None
        return key is not None and (owner is None or owner.uid != reference.get("uid"))

    def _remove_finalizers(self, transaction: Transaction, waiting: StoredObject, over: frozenset[str]) -> bool:
        """Remove finalizers that are due; with the last one the object is deleted."""
        found = _again(transaction, waiting)
        if FOREGROUND_FINALIZER in over and any(waiting.uid in blocking_uids(each) for each in transaction.owned()):
            over -= {FOREGROUND_FINALIZER}
        if found is None or over.isdisjoint(found.finalizers):
            return False
        left = tuple(each for each in found.finalizers if each not in over)
        if left:
            transaction.put(replace(found, finalizers=left))
        else:
            transaction.remove(found)
        return True


def _again(transaction: Transaction, seen: StoredObject) -> StoredObject | None:
    """Return the object as stored now; None if it is gone, or its name is another object's."""
    found = transaction.get(seen.kind, seen.namespace, seen.name)
    return found if found is not None and found.uid == seen.uid else None
