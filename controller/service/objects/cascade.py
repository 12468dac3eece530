"""Cascading deletion in one transaction; all refusals are reported at once.

Background: delete the objects, and every dependent whose owners are all deleted. Foreground: the same, and an owner
stays until its dependents are gone. Orphan: dependents stay, without the reference. A dependent with another owner
always stays, without the reference to the deleted one.

An object that others refer to by name can't be deleted while one of those stays. If all of them are being deleted, it
is marked, and a finalizer keeps it until the last of them is gone.

An object whose work must end first (`Kind.ends_later`) is marked, and keeps its dependents until that work has ended:
the garbage collector deletes them once it is gone.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from controller.kinds.common.owner_reference import (
    ENDING_FINALIZER,
    FOREGROUND_FINALIZER,
    IN_USE_FINALIZER,
    Propagation,
    blocking_uids,
    owner_key,
    owner_uids,
)
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Reference, Registry
from controller.ports import Transaction
from controller.service import errors


class Cascade:
    """The deletions of one transaction. `now` is Unix seconds."""

    def __init__(self, transaction: Transaction, registry: Registry, now: float) -> None:
        self._transaction, self._registry, self._now = transaction, registry, now

    def closure(self, roots: Sequence[StoredObject]) -> list[StoredObject]:
        """Return the objects, and all dependents without another owner."""
        doomed_by_uid = {root.uid: root for root in roots}
        owned = self._transaction.owned()
        grown = True
        while grown:
            dependents = [
                candidate
                for candidate in owned
                if candidate.uid not in doomed_by_uid
                and self._goes_with(candidate, doomed_by_uid.keys())
                and not self._is_kept(candidate, doomed_by_uid.values())
            ]
            doomed_by_uid.update((dependent.uid, dependent) for dependent in dependents)
            grown = bool(dependents)
        return list(doomed_by_uid.values())

    def refusals(self, doomed: Sequence[StoredObject]) -> list[str]:
        """Return the reasons not to delete these: objects that stay refer to them by name."""
        uids = {obj.uid for obj in doomed}
        return [text for obj in doomed if obj.deleted_at is None for text in self._in_use(obj, uids)]

    def delete(self, roots: Sequence[StoredObject], propagation: Propagation | None = None) -> list[StoredObject]:
        """Request the deletion of these, and return them as stored then. Raises Conflict with all refusals.

        For an object in deletion only another `propagation` makes a difference.
        """
        fresh = [root for root in roots if root.deleted_at is None or propagation is not None]
        doomed = list(fresh) if propagation == "Orphan" else self.closure(fresh)
        refusals = self.refusals(doomed)
        if refusals:
            raise errors.Conflict("\n".join(refusals))
        marked = self.mark(doomed, propagation)
        return [marked.get(root.uid, root) for root in roots]

    def mark(self, doomed: Sequence[StoredObject], propagation: Propagation | None = None) -> dict[str, StoredObject]:
        """Mark or remove a whole closure; return the objects as stored then, by uid."""
        uids = {obj.uid for obj in doomed}
        owned = self._transaction.owned() if doomed else ()
        removed_uids = uids if propagation == "Orphan" else {obj.uid for obj in doomed if not self._ends_later(obj)}
        for dependent in owned:
            if dependent.uid not in uids:
                self._disown(dependent, removed_uids)
        waits = (
            {uid for dependent in owned for uid in blocking_uids(dependent)} if propagation == "Foreground" else set()
        )
        # Users first: one that is removed at once holds nothing any more.
        in_order = sorted(doomed, key=lambda obj: self._registry.deletion_order.get(obj.kind, 0))
        return {obj.uid: self._mark(obj, stays=obj.uid in waits) for obj in in_order}

    def _ends_later(self, obj: StoredObject) -> bool:
        kind = self._registry.by_name(obj.kind)
        return kind is not None and kind.ends_later(obj)

    def _is_kept(self, obj: StoredObject, doomed: Collection[StoredObject]) -> bool:
        """Return True for a dependent of an object whose work must end first."""
        owners_of_obj = owner_uids(obj)
        return any(owner.uid in owners_of_obj and self._ends_later(owner) for owner in doomed)

    def _goes_with(self, obj: StoredObject, doomed_uids: Collection[str]) -> bool:
        owners_of_obj = owner_uids(obj)
        if not any(uid in doomed_uids for uid in owners_of_obj):
            return False
        return all(uid in doomed_uids or self._is_gone(obj, at) for at, uid in enumerate(owners_of_obj))

    def _is_gone(self, obj: StoredObject, at: int) -> bool:
        reference = obj.owner_references[at]
        key = owner_key(reference, obj.namespace, self._registry)
        owner = self._transaction.get(*key) if key else None
        return key is not None and (owner is None or owner.uid != reference.get("uid"))

    def _disown(self, obj: StoredObject, removed_uids: Collection[str]) -> None:
        remaining = tuple(reference for reference in obj.owner_references if reference.get("uid") not in removed_uids)
        if remaining != obj.owner_references:
            self._transaction.put(replace(obj, owner_references=remaining))

    def _mark(self, obj: StoredObject, *, stays: bool) -> StoredObject:
        own_finalizers = (FOREGROUND_FINALIZER, IN_USE_FINALIZER, ENDING_FINALIZER)
        finalizer_list = [finalizer for finalizer in obj.finalizers if finalizer not in own_finalizers]
        finalizer_list += [ENDING_FINALIZER] if self._ends_later(obj) else []
        finalizer_list += [FOREGROUND_FINALIZER] if stays else []
        in_use = any(user.deleted_at is not None for _, users in self._users(obj) for user in users)
        finalizer_list += [IN_USE_FINALIZER] if in_use else []
        finalizers = tuple(finalizer_list)
        marked = replace(obj, deleted_at=obj.deleted_at or self._now, finalizers=finalizers)
        if finalizers:
            return self._transaction.put(marked)
        self._transaction.remove(obj)
        return marked

    def _in_use(self, obj: StoredObject, doomed_uids: Collection[str]) -> Iterable[str]:
        for reference, referrers in self._users(obj):
            staying = [
                referrer for referrer in referrers if referrer.deleted_at is None and referrer.uid not in doomed_uids
            ]
            # Objects of the host are referred to from every namespace.
            users = [
                referrer.name if obj.namespace else f"{referrer.namespace}/{referrer.name}" for referrer in staying
            ]
            if users:
                names = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
                subject = f"{obj.kind.lower()} `{obj.name}`"
                yield f"{subject} is used by {reference.kind.lower()} {names}; delete or change those first"

    def _users(self, obj: StoredObject) -> Iterable[tuple[Reference, list[StoredObject]]]:
        """Yield the objects that refer to one by name, by reference."""
        kind = self._registry.by_name(obj.kind)
        for reference in kind.referenced_by if kind else ():
            candidates = self._transaction.list(reference.kind, obj.namespace or None)
            yield reference, [candidate for candidate in candidates if reference.names(candidate) == obj.name]
