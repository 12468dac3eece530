"""Watches: nothing twice and nothing missed, from any revision on; selectors, bookmarks, bounds."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, discover
from controller.ports import Change
from controller.service import errors
from controller.service.listing import selector
from controller.service.objects.texts import ObjectTexts
from controller.service.watch.announce import announcing
from controller.service.watch.hub import BOOKMARK_SECONDS, Watches
from controller.service.watch.label_history import Membership
from controller.service.watch.watcher import FirstObjects, Scope, SerializedObject, Watch, WatchEvent
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.contract.store_backends import BACKENDS, Backend, insert, make_backend, new_sandbox
from tests.daemon import wait_for

WRITERS, COMMITS = 8, 15


class Reader:
    """A watcher like an endpoint: takes the pending events at each wake."""

    def __init__(self, watches: Watches, **options: Any) -> None:
        self._woken = threading.Event()
        self._watches = watches
        self.watch: Watch = watches.open(sandbox_kind(), wake=self._woken.set, **options)
        self.events: list[WatchEvent] = []
        while (earlier := watches.earlier(self.watch)) is not None:
            self.events += earlier

    def read(self, until: Any = None) -> list[tuple[str, str]]:
        """Return the events as (type, name), once `until` is true of them, or the watch has ended."""

        def there() -> bool:
            self._woken.wait(0.05)
            self._woken.clear()
            has_ended = bool(self.watch.end_state)
            self.events += self.watch.take()
            return has_ended or until is None or until(self.told())

        wait_for("the events", there)
        return self.told()

    def told(self) -> list[tuple[str, str]]:
        return [
            (event.type, event.serialized.obj.name if event.serialized else str(event.revision))
            for event in self.events
        ]


def sandbox_kind() -> Kind:
    name = discover().by_name("Sandbox")
    assert name is not None
    return name


def count(wanted: int) -> Any:
    return lambda told: len(told) >= wanted


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(backend: Backend) -> SqlStore:
    return backend.store()


@pytest.fixture
def watches(store: SqlStore, clock: HandClock) -> Iterator[Watches]:
    created = Watches(store, clock, most=20, ahead=10, poll_seconds=0.05)
    yield created
    created.close()


def relabel(store: SqlStore, obj: StoredObject, **labels: str) -> StoredObject:
    current = store.get(obj.kind, obj.namespace, obj.name)
    assert current is not None
    return insert(store, replace(current, labels=labels))[0]


def remove(store: SqlStore, obj: StoredObject) -> None:
    with store.transaction() as transaction:
        transaction.remove(obj)


def test_without_a_revision_it_begins_with_what_is_there(store: SqlStore, watches: Watches) -> None:
    stored, _ = insert(store, new_sandbox("one"), new_sandbox("two"))
    reader = Reader(watches)
    assert reader.told() == [("ADDED", "one"), ("ADDED", "two")]
    relabel(store, stored, app="x")
    remove(store, stored)
    assert reader.read(count(4))[2:] == [("MODIFIED", "one"), ("DELETED", "one")]


def test_a_watch_resumes_without_gap_or_repeat(store: SqlStore, watches: Watches) -> None:
    for number in range(6):
        insert(store, new_sandbox(f"box-{number}"))
    first = Reader(watches, since=1)
    insert(store, new_sandbox("last"))
    expected = [("ADDED", f"box-{number}") for number in range(1, 6)] + [("ADDED", "last")]
    assert first.read(count(6)) == expected
    for since in range(1, 7):
        assert Reader(watches, since=since).read(count(7 - since)) == expected[since - 1 :]


def test_a_revision_that_is_pruned_or_not_reached_is_gone(store: SqlStore, watches: Watches) -> None:
    for number in range(4):
        insert(store, new_sandbox(f"box-{number}"))
    store.prune(keep_changes=1, events_before=0)
    for since in (1, 99):
        with pytest.raises(errors.Gone, match="list again"):
            Reader(watches, since=since)
    assert Reader(watches, since=3).read(count(1)) == [("ADDED", "box-3")]
    assert watches.count == 1


def test_scope_is_kind_namespace_and_name(store: SqlStore, watches: Watches) -> None:
    reader = Reader(watches, namespace="default")
    by_name = Reader(watches, namespace="default", name="one")
    insert(
        store,
        new_sandbox("one", namespace="team"),
        replace(new_sandbox("one", uid="q"), kind="Quota"),
        new_sandbox("one"),
        new_sandbox("two"),
    )
    assert reader.read(count(2)) == [("ADDED", "one"), ("ADDED", "two")]
    assert by_name.read(count(1)) == [("ADDED", "one")]


def test_label_changes_add_and_delete_for_a_selector(store: SqlStore, watches: Watches) -> None:
    stored, two = insert(store, new_sandbox("one", labels={"app": "web"}), new_sandbox("two"))
    since = store.revision()
    live = Reader(watches, labels="app=web", since=since)
    relabel(store, two, app="db")
    relabel(store, two, app="web")
    relabel(store, stored, app="db")
    relabel(store, stored, app="cache")
    remove(store, stored)
    remove(store, two)
    expected = [("ADDED", "two"), ("DELETED", "one"), ("DELETED", "two")]
    assert live.read(count(3)) == expected
    # Whoever resumes amid that gets the rest of it: what matched at that revision is remembered.
    for after, remaining in ((0, expected), (2, expected[1:]), (3, expected[2:]), (6, [])):
        assert Reader(watches, labels="app=web", since=since + after).read(count(len(remaining))) == remaining


def test_a_selector_without_history_sends_too_much(store: SqlStore, watches: Watches) -> None:
    (stored,) = insert(store, new_sandbox("one", labels={"app": "web"}))
    since = store.revision()
    relabel(store, stored, app="db")
    assert Reader(watches, labels="app=web", since=since).read(count(1)) == [("DELETED", "one")]


def test_bookmarks_come_at_least_once_a_minute(store: SqlStore, watches: Watches, clock: HandClock) -> None:
    with_, without = Reader(watches, bookmarks=True), Reader(watches)
    assert with_.told() == [("BOOKMARK", "0")]
    insert(store, replace(new_sandbox("other"), kind="Quota"))
    newest = ("BOOKMARK", str(store.revision()))

    def told(events: list[tuple[str, str]]) -> bool:
        # Again and again: the hub may have looked just before the insert, and found the time just after it.
        clock.advance(BOOKMARK_SECONDS)
        watches.notify()
        return newest in events

    with_.read(told)
    assert BOOKMARK_SECONDS < 60
    insert(store, new_sandbox("one"))
    assert without.read(count(1)) == [("ADDED", "one")]


def test_only_a_lagging_watch_is_ended(store: SqlStore, watches: Watches) -> None:
    slow, quick = Reader(watches), Reader(watches)
    for number in range(15):
        insert(store, new_sandbox(f"box-{number:02}"))
        quick.read(count(number + 1))
    wait_for("the slow one is cut", lambda: slow.watch.end_state)
    assert isinstance(slow.watch.end_state, errors.Gone)
    assert slow.read() == []
    assert (quick.watch.end_state, watches.count) == (False, 1)


def test_a_commit_larger_than_the_buffer_still_comes_whole(store: SqlStore, watches: Watches) -> None:
    reader = Reader(watches)
    insert(store, *(new_sandbox(f"box-{number:02}") for number in range(25)))
    assert len(reader.read(count(25))) == 25


def test_watches_are_limited_and_closing_frees_one(watches: Watches) -> None:
    readers = [Reader(watches) for _ in range(20)]
    with pytest.raises(errors.TooManyRequests, match="20 watches are open"):
        Reader(watches)
    readers[0].watch.close()
    Reader(watches)


def test_closing_ends_all_watches_and_refuses_others(watches: Watches) -> None:
    reader = Reader(watches)
    watches.close()
    assert (reader.read(), reader.watch.end_state) == ([], True)
    with pytest.raises(errors.ServiceUnavailable, match="stopping"):
        Reader(watches)


def test_a_selector_that_cannot_be_read(watches: Watches) -> None:
    with pytest.raises(errors.BadRequest, match="can't read"):
        Reader(watches, labels="a b")


def test_watches_recover_from_a_failing_store(store: SqlStore, watches: Watches, backend: Backend, quiet: None) -> None:
    reader = Reader(watches)
    store.close()
    watches.notify()
    second = backend.store()
    insert(second, new_sandbox("meanwhile"))
    store.open()
    assert reader.read(count(1)) == [("ADDED", "meanwhile")]


def test_a_write_through_the_announcing_store_needs_no_poll(store: SqlStore, clock: HandClock) -> None:
    watches = Watches(store, clock, poll_seconds=3600)
    reported = announcing(store, watches.notify)
    try:
        reader = Reader(watches)
        with reported.transaction() as transaction:
            transaction.put(new_sandbox("one"))
        assert reader.read(count(1)) == [("ADDED", "one")]
    finally:
        watches.close()


def check_nothing_missed(store: SqlStore, readers: list[Reader], begun: int) -> None:
    """Each reader gets what the store's log has, in its order."""
    log = [(change.type, change.obj.name) for change in store.changes(begun, limit=100_000)]
    assert len(log) >= WRITERS * COMMITS
    for reader in readers:
        assert reader.read(count(len(log))) == log


def test_no_commit_of_8_threads_is_missed(backend: Backend, store: SqlStore, clock: HandClock) -> None:
    watches = Watches(store, clock)
    reported = announcing(backend.store(), watches.notify)

    def write(writer: int) -> None:
        for number in range(COMMITS):
            with reported.transaction() as transaction:
                transaction.put(new_sandbox(f"{writer}-{number}"))

    threads = [threading.Thread(target=write, args=(index,)) for index in range(WRITERS)]
    try:
        readers = [Reader(watches)]
        for thread in threads:
            thread.start()
        # Some come in the middle, and begin at the beginning or where the store is.
        while any(entry.is_alive() for entry in threads) and len(readers) < 6:
            wait_for("some more", lambda: store.revision() > len(readers) * 10)
            readers.append(Reader(watches, since=1))
        for one_thread in threads:
            one_thread.join()
        check_nothing_missed(store, readers[:1], 0)
        for reader in readers[1:]:
            assert reader.read(count(WRITERS * COMMITS - 1)) == readers[0].told()[1:]
    finally:
        watches.close()


def test_no_commit_of_8_processes_is_missed(backend: Backend, store: SqlStore, clock: HandClock) -> None:
    children = [backend.child("write", f"w{index}", COMMITS) for index in range(WRITERS)]
    watches = Watches(store, clock, poll_seconds=0.05)
    try:
        readers = [Reader(watches), Reader(watches, namespace="default")]
        for child in children:
            assert child.says() == "ready"
        for child in children:
            child.go()
        for child in children:
            assert child.says() == "done"
        check_nothing_missed(store, readers, 0)
    finally:
        watches.close()


def test_a_change_before_the_watch_adds_nothing() -> None:
    """One that is left out at the beginning is ADDED by its first change afterwards."""
    before, after = (StoredObject("Sandbox", "default", "a", "u", {}, resource_version=entry) for entry in (12, 13))
    first, texts = FirstObjects("Sandbox"), ObjectTexts()
    first.leave_out(after)
    members = Membership(selector.parse(""), {"u": True})
    watch = Watch(Scope("Sandbox"), members, since=12, first=first, ahead=10, wake=lambda: None, texts=texts)
    changes = [Change(stored.resource_version, "MODIFIED", stored) for stored in (before, after)]
    watch.offer([(change, SerializedObject(change.obj, texts)) for change in changes])
    assert [(watch_event.type, watch_event.revision) for watch_event in watch.take()] == [("ADDED", 13)]
