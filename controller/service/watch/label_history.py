"""Labels of objects by revision: a change of labels is ADDED or DELETED for a selector."""

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from controller.kinds.meta import StoredObject
from controller.ports import Change
from controller.service.listing.selector import Selector

Labels = Mapping[str, str]
_MOST_ENTRIES = 50_000


class LabelHistory:
    """The labels of one kind's objects, from the listing given to `begin` on. Only label changes are kept.

    `note` may come before `begin`: its changes are buffered then.
    """

    def __init__(self) -> None:
        self._since: int | None = None
        self._early: list[Change] = []
        self._of: dict[str, list[tuple[int, Labels | None]]] = {}
        self._lock = threading.Lock()
        self._entries = 0

    def begin(self, objects: Iterable[StoredObject], revision: int) -> None:
        """Load the objects of a revision."""
        with self._lock:
            self._of = {obj.uid: [(obj.resource_version, obj.labels)] for obj in objects}
            self._entries = len(self._of)
            self._since = revision
            for change in self._early:
                self._note(change, revision)
            self._early = []

    def note(self, change: Change) -> None:
        """Add the next change; one that the listing includes is ignored."""
        with self._lock:
            if self._since is None:
                self._early.append(change)
            else:
                self._note(change, self._since)

    def _note(self, change: Change, since: int) -> None:
        if change.revision <= since:
            return
        entries = self._of.setdefault(change.obj.uid, [])
        labels = None if change.type == "DELETED" else change.obj.labels
        if not entries or entries[-1][1] != labels:
            entries.append((change.revision, labels))
            self._entries += 1

    @property
    def is_full(self) -> bool:
        """Return True if the history should be replaced by a new listing."""
        return self._entries > _MOST_ENTRIES

    def matching(self, selector: Selector, revision: int) -> "Membership":
        """Return the objects that matched at that revision. Call it after `begin`."""
        with self._lock:
            matched = {}
            for uid, entries in self._of.items():
                labels = next((labels for at, labels in reversed(entries) if at <= revision), None)
                if labels is not None:
                    matched[uid] = selector.matches(labels)
            # Before the listing, an object without an entry may have existed or not.
            is_complete = self._since is not None and revision >= self._since
        return Membership(selector, matched, otherwise=False if is_complete else None)


class Membership:
    """The objects that a watcher holds, by uid. `otherwise` applies to all others; None: unknown."""

    def __init__(
        self, selector: Selector, matched: Mapping[str, bool] = MappingProxyType({}), *, otherwise: bool | None = False
    ) -> None:
        self._selector, self._held, self._otherwise = selector, dict(matched), otherwise

    def event(self, change: Change) -> str:
        """Return ADDED, MODIFIED, DELETED or "", as this watcher sees the change.

        If it is unknown whether the watcher holds the object, it gets MODIFIED or DELETED. These are right if it does,
        and harmless if not.
        """
        if not self._selector.requirements:
            return change.type
        uid, matches = change.obj.uid, self._selector.matches(change.obj.labels)
        had = self._held.pop(uid, self._otherwise)
        if change.type == "ADDED" and had is None:
            had = False
        if change.type == "DELETED":
            return "DELETED" if had or (had is None and matches) else ""
        self._held[uid] = matches
        if matches:
            return "ADDED" if had is False else "MODIFIED"
        return "" if had is False else "DELETED"
