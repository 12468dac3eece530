"""Caches of stored objects: all of some kinds, parsed, and the number of all. The same mapping until one changes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, TypeVar

from controller.kinds.meta import StoredObject
from controller.ports import Change

_T = TypeVar("_T")


class ObjectCache(Generic[_T]):
    """All objects of the `kinds` by uid, each parsed by `read`."""

    def __init__(self, kinds: Iterable[str], read: Callable[[StoredObject], _T]) -> None:
        self._kinds, self._read = tuple(kinds), read
        self.now: Mapping[str, _T] = MappingProxyType({})

    def relist(self, listed: Mapping[str, Sequence[StoredObject]]) -> None:
        """Read all objects again; `listed` are all stored ones by kind."""
        objects = (stored for kind in self._kinds for stored in listed[kind])
        self.now = MappingProxyType({stored.uid: self._read(stored) for stored in objects})

    def take_in(self, changes: Iterable[Change]) -> None:
        """Apply changes from the watch log."""
        mine = [change for change in changes if change.obj.kind in self._kinds]
        if not mine:
            return
        fresh = dict(self.now)
        for change in mine:
            if change.type == "DELETED":
                fresh.pop(change.obj.uid, None)
            else:
                fresh[change.obj.uid] = self._read(change.obj)
        self.now = MappingProxyType(fresh)


class ObjectCounts:
    """Number of stored objects of every kind, by namespace."""

    def __init__(self) -> None:
        self._namespaces: dict[str, str] = {}  # by uid
        self.now: Mapping[str, int] = MappingProxyType({})

    def relist(self, objects: Iterable[StoredObject]) -> None:
        """Count all objects again."""
        self._namespaces = {stored.uid: stored.namespace for stored in objects}
        self.now = MappingProxyType(Counter(self._namespaces.values()))

    def take_in(self, changes: Iterable[Change]) -> None:
        """Apply changes from the watch log; idempotent."""
        fresh = Counter(self.now)
        for change in changes:
            uid, namespace = change.obj.uid, change.obj.namespace
            if change.type == "DELETED" and self._namespaces.pop(uid, None) is not None:
                fresh[namespace] -= 1
            elif change.type != "DELETED" and uid not in self._namespaces:
                self._namespaces[uid] = namespace
                fresh[namespace] += 1
        if fresh != self.now:
            self.now = MappingProxyType(fresh)
