"""Objects of some kinds that much is decided by, kept as read: the same mapping as long as none of them changed."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from controller.kinds.meta import StoredObject
from controller.ports import Change, Store

_T = TypeVar("_T")


class Kept(Generic[_T]):
    """All objects of the `kinds` by uid, each as `read` gives it."""

    def __init__(self, kinds: Iterable[str], read: Callable[[StoredObject], _T]) -> None:
        self._kinds, self._read = tuple(kinds), read
        self.now: Mapping[str, _T] = MappingProxyType({})

    def relist(self, store: Store) -> None:
        """Read all of them."""
        found = (each for kind in self._kinds for each in store.list(kind)[0])
        self.now = MappingProxyType({each.uid: self._read(each) for each in found})

    def take_in(self, changes: Iterable[Change]) -> None:
        """Bring them up to date."""
        mine = [each for each in changes if each.obj.kind in self._kinds]
        if not mine:
            return
        fresh = dict(self.now)
        for each in mine:
            if each.type == "DELETED":
                fresh.pop(each.obj.uid, None)
            else:
                fresh[each.obj.uid] = self._read(each.obj)
        self.now = MappingProxyType(fresh)
