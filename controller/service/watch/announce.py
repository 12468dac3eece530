"""A store wrapper that notifies watches after each commit."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.ports import Store, Transaction, Wake


def announcing(store: Store, committed: Wake) -> Store:
    """Return the store; `committed` is called after each write, on the writer's thread. It must not block."""
    return cast("Store", _AnnouncingStore(store, committed))


class _AnnouncingStore:
    """A wrapper of the store's two write methods; all else is delegated."""

    def __init__(self, store: Store, committed: Wake) -> None:
        self._store, self._committed = store, committed

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._store.transaction() as transaction:
            yield transaction
        self._committed()

    def record(self, writes: Writes) -> Mapping[str, Instance]:
        stored = self._store.record(writes)
        self._committed()
        return stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
