"""Desired state of one host among many: read page by page, while others write."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.registry import discover
from controller.loop.desired import Desired
from controller.loop.garbage import GarbageCollector
from controller.ports import ObjectPage
from controller.ports.fleet import SINGLE, ManyHosts
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import Backend, both_stores, new_sandbox

_SPEC = {"template": {"image": "paddock/test-tiny:1"}}
_HOSTS = ("a", "b", "")
_COUNT = 2100  # three pages, the last of which is not full


@dataclass
class Busy:
    """A store in which something is written between two pages of a list."""

    store: SqlStore
    between: list[Callable[[], None]] = field(default_factory=list)

    def page(self, *arguments: Any, **options: Any) -> ObjectPage:
        page = self.store.page(*arguments, **options)
        if self.between:
            self.between.pop(0)()
        return page

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture
def store(backend: Backend) -> SqlStore:
    created = backend.store()
    with created.transaction() as transaction:
        for at in range(_COUNT):
            host = _HOSTS[at % 3]
            transaction.put(
                new_sandbox(f"s-{at:04}", f"team-{at % 7}", spec=_SPEC, status={"host": host} if host else {})
            )
    return created


def desired(store: SqlStore | Busy, host: str = "a") -> Desired:
    return Desired(store, GarbageCollector(store, discover()), ManyHosts(host))  # type: ignore[arg-type]


def names(found: Any) -> set[str]:
    return {getattr(entry, "obj", entry).name for entry in found.values()}


def of(host: str, *, without: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    return {f"s-{at:04}" for at in range(_COUNT) if _HOSTS[at % 3] == host} - without


@both_stores
def test_a_host_reads_its_own_of_many_pages(store: SqlStore) -> None:
    read = desired(store)
    assert names(read.refresh()) == of("a")
    assert names(read.unbound) == of("")
    assert len(read.elsewhere) == len(of("b"))
    assert sum(read.counts.now.values()) == _COUNT
    assert read.refresh() is read.refresh(), "nothing new"


def test_one_host_leaves_what_is_bound_to_others(store: SqlStore) -> None:
    read = Desired(store, GarbageCollector(store, discover()), SINGLE)
    assert names(read.refresh()) == of("")
    assert len(read.elsewhere) == len(of("a") | of("b"))


def test_writes_between_pages_are_not_missed(store: SqlStore) -> None:
    def named(name: str) -> StoredObject:
        return next(stored for stored in store.list("Sandbox")[0] if stored.name == name)

    def first() -> None:
        with store.transaction() as transaction:
            transaction.remove(named("s-0000"))  # a's, of the page before
            transaction.remove(named("s-2097"))  # a's, of a page to come
            transaction.put(new_sandbox("z-new", "team-6", spec=_SPEC, status={"host": "a"}))
            transaction.put(new_sandbox("a-new", "team-0", spec=_SPEC, status={"host": "a"}))

    occupied = Busy(store, [first])
    read = desired(occupied)
    read.refresh()
    assert names(read.refresh()) == of("a", without={"s-0000", "s-2097"}) | {"z-new", "a-new"}
    assert sum(read.counts.now.values()) == _COUNT
