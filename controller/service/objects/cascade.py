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
        going = {each.uid: each for each in roots}
        owned = self._transaction.owned()
        grown = True
        while grown:
            more = [
                each
                for each in owned
                if each.uid not in going
                and self._goes_with(each, going.keys())
                and not self._is_kept(each, going.values())
            ]
            going.update((each.uid, each) for each in more)
            grown = bool(more)
        return list(going.values())

    def refusals(self, going: Sequence[StoredObject]) -> list[str]:
        """Return the reasons not to delete these: objects that stay refer to them by name."""
        uids = {each.uid for each in going}
        return [text for obj in going if obj.deleted_at is None for text in self._in_use(obj, uids)]

    def delete(self, roots: Sequence[StoredObject], propagation: Propagation | None = None) -> list[StoredObject]:
        """Request the deletion of these, and return them as stored then. Raises Conflict with all refusals.

        For an object in deletion only another `propagation` makes a difference.
        """
        fresh = [each for each in roots if each.deleted_at is None or propagation is not None]
        going = list(fresh) if propagation == "Orphan" else self.closure(fresh)
        refusals = self.refusals(going)
        if refusals:
            raise errors.Conflict("\n".join(refusals))
        marked = self.mark(going, propagation)
        return [marked.get(each.uid, each) for each in roots]

    def mark(self, going: Sequence[StoredObject], propagation: Propagation | None = None) -> dict[str, StoredObject]:
        """Mark or remove a whole closure; return the objects as stored then, by uid."""
        uids = {each.uid for each in going}
        owned = self._transaction.owned() if going else ()
        leaving = uids if propagation == "Orphan" else {each.uid for each in going if not self._ends_later(each)}
        for each in owned:
            if each.uid not in uids:
                self._disown(each, leaving)
        waits = {uid for each in owned for uid in blocking_uids(each)} if propagation == "Foreground" else set()
        # Users first: one that is removed at once holds nothing any more.
        in_order = sorted(going, key=lambda each: self._registry.deletion_order.get(each.kind, 0))
        return {each.uid: self._mark(each, stays=each.uid in waits) for each in in_order}

    def _ends_later(self, obj: StoredObject) -> bool:
        kind = self._registry.by_name(obj.kind)
        return kind is not None and kind.ends_later(obj)

    def _is_kept(self, obj: StoredObject, going: Collection[StoredObject]) -> bool:
        """Return True for a dependent of an object whose work must end first."""
        named = owner_uids(obj)
        return any(each.uid in named and self._ends_later(each) for each in going)

    def _goes_with(self, obj: StoredObject, going: Collection[str]) -> bool:
        named = owner_uids(obj)
        if not any(uid in going for uid in named):
            return False
        return all(uid in going or self._is_gone(obj, at) for at, uid in enumerate(named))

    def _is_gone(self, obj: StoredObject, at: int) -> bool:
        reference = obj.owner_references[at]
        key = owner_key(reference, obj.namespace, self._registry)
        owner = self._transaction.get(*key) if key else None
        return key is not None and (owner is None or owner.uid != reference.get("uid"))

    def _disown(self, obj: StoredObject, going: Collection[str]) -> None:
        remaining = tuple(each for each in obj.owner_references if each.get("uid") not in going)
        if remaining != obj.owner_references:
            self._transaction.put(replace(obj, owner_references=remaining))

    def _mark(self, found: StoredObject, *, stays: bool) -> StoredObject:
        own = (FOREGROUND_FINALIZER, IN_USE_FINALIZER, ENDING_FINALIZER)
        kept = [each for each in found.finalizers if each not in own]
        kept += [ENDING_FINALIZER] if self._ends_later(found) else []
        kept += [FOREGROUND_FINALIZER] if stays else []
        in_use = any(each.deleted_at is not None for _, users in self._users(found) for each in users)
        kept += [IN_USE_FINALIZER] if in_use else []
        finalizers = tuple(kept)
        marked = replace(found, deleted_at=found.deleted_at or self._now, finalizers=finalizers)
        if finalizers:
            return self._transaction.put(marked)
        self._transaction.remove(found)
        return marked

    def _in_use(self, obj: StoredObject, going: Collection[str]) -> Iterable[str]:
        for reference, found in self._users(obj):
            staying = [each for each in found if each.deleted_at is None and each.uid not in going]
            # Objects of the host are referred to from every namespace.
            users = [each.name if obj.namespace else f"{each.namespace}/{each.name}" for each in staying]
            if users:
                names = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
                subject = f"{obj.kind.lower()} `{obj.name}`"
                yield f"{subject} is used by {reference.kind.lower()} {names}; delete or change those first"

    def _users(self, obj: StoredObject) -> Iterable[tuple[Reference, list[StoredObject]]]:
        """Yield the objects that refer to one by name, by reference."""
        kind = self._registry.by_name(obj.kind)
        for reference in kind.referenced_by if kind else ():
            found = self._transaction.list(reference.kind, obj.namespace or None)
            yield reference, [each for each in found if reference.names(each) == obj.name]
