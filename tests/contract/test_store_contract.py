"""Contract of every Store, on SQLite and on PostgreSQL. Where a database differs, see tests/store."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from controller.kinds.meta import StoredObject
from controller.kinds.observed.activity import StoredUse
from controller.kinds.planning.instance_state import Failure, Termination
from controller.kinds.planning.plan import Deletion, StatusWrite, Writes
from controller.kinds.quota import Amount, host_scope
from controller.kinds.runtime.container import Limits
from controller.ports import Change, ChangesGone, Conflict, Store, StoreError
from controller.store.schema import changes
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, event, insert, instance, make_backend, new_sandbox, refusal
from tests.daemon import wait_for
from tests.examples import examples
from tests.instance_states import instance_state


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


@pytest.fixture
def store(backend: Backend) -> SqlStore:
    return backend.store()


def in_thread(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def kinds_of(seen: list[Change]) -> list[tuple[int, str, str]]:
    return [(change.revision, change.type, change.obj.name) for change in seen]


def test_a_new_store_is_empty_and_can_be_written(store: SqlStore) -> None:
    port: Store = store
    assert port.ping() == ""
    assert port.revision() == 0
    assert port.list("Sandbox") == ([], 0)
    assert port.get("Sandbox", "default", "box") is None
    assert (list(port.changes(0)), list(port.instances()), list(port.events())) == ([], [], [])


def test_figures_tell_size_schema_and_objects(backend: Backend, store: SqlStore) -> None:
    insert(store, new_sandbox("a"), new_sandbox("b", "other"), StoredObject("Quota", "default", "q", "uid-q", spec={}))
    figures = store.figures()
    assert figures.backend == ("postgresql" if backend.schema else "sqlite")
    assert figures.objects == {"Sandbox": 2, "Quota": 1}
    assert figures.schema_current
    assert figures.size_bytes > 0
    assert (figures.wal_bytes is None) == bool(backend.schema)
    assert figures.server_version


def test_annotations_of_a_namespace_are_summed(store: SqlStore) -> None:
    large = {"example.org/note": "x" * 10_000}
    insert(
        store,
        replace(new_sandbox("a"), annotations=large),
        replace(new_sandbox("b"), annotations=large),
        new_sandbox("c", "other"),
    )
    with store.transaction() as transaction:
        assert 20_000 < transaction.annotation_bytes("default") < 20_200
        assert transaction.annotation_bytes("other") < 10
        assert transaction.annotation_bytes("nowhere") == 0


def test_the_instance_id_is_kept_for_the_life_of_the_store(backend: Backend) -> None:
    first = backend.store()
    first_id = first.instance_id
    first.close()
    assert backend.store().instance_id == first_id
    assert len(first_id) == 36


def test_opening_again_is_no_new_beginning(store: SqlStore) -> None:
    before = store.instance_id
    insert(store, new_sandbox())
    store.open()
    assert (store.instance_id, store.revision()) == (before, 1)


def test_nothing_is_done_before_open_or_after_close(backend: Backend) -> None:
    store = SqlStore(backend.url, schema=backend.schema)
    assert "not open" in str(refusal(store.revision))
    store.close()
    assert "not open" in store.ping()


class TestObjects:
    def test_all_fields_come_back(self, store: SqlStore) -> None:
        given_ = new_sandbox(
            generation=7,
            deleted_at=1_700_000_000.123456,
            created_at=1_699_999_999.987654,
            labels={"app": "x", "empty": ""},
            annotations={"paddock/note": "ä\n\0"},
            finalizers=("b", "a"),
            owner_references=({"kind": "Pool", "uid": "u", "controller": True},),
            last_applied={"spec": {"x": [1, 2.5, None]}},
            status={"conditions": [{"type": "Ready", "status": "True"}], "fieldOfANewerDaemon": {"deep": [{}]}},
        )
        [stored] = insert(store, given_)
        assert stored == replace(given_, resource_version=1)
        assert store.get("Sandbox", "default", "box") == stored
        assert store.list("Sandbox") == ([stored], 1)
        assert list(store.changes(0)) == [Change(1, "ADDED", stored)]

    def test_never_applied_is_not_applied_as_nothing(self, store: SqlStore) -> None:
        insert(store, new_sandbox("a"), new_sandbox("b", last_applied={}))
        objects, _ = store.list("Sandbox")
        assert [stored.last_applied for stored in objects] == [None, {}]

    def test_lists_are_in_order_and_by_namespace(self, store: SqlStore) -> None:
        insert(
            store,
            new_sandbox("b", "two"),
            new_sandbox("a-a", "two"),
            new_sandbox("ab", "two"),
            new_sandbox("z", "one"),
            new_sandbox("a1", "two"),
        )
        insert(store, replace(new_sandbox("quota", uid="q"), kind="Quota"))
        objects, revision = store.list("Sandbox")
        assert [f"{stored.namespace}/{stored.name}" for stored in objects] == [
            "one/z",
            "two/a-a",
            "two/a1",
            "two/ab",
            "two/b",
        ]
        assert revision == 6
        assert [stored.name for stored in store.list("Sandbox", "one")[0]] == ["z"]
        assert store.list("Sandbox", "none") == ([], 6)

    @pytest.mark.parametrize(
        "broken",
        [
            {"spec": {"x": float("nan")}},
            {"spec": {"x": {1, 2}}},
            {"status": {"x": b"bytes"}},
            {"generation": 1 << 63},
            {"name": "nul\0"},
            {"name": "half\ud800"},
        ],
        ids=str,
    )
    def test_what_cannot_be_stored_is_refused_and_nothing_written(
        self, store: SqlStore, broken: dict[str, object]
    ) -> None:
        error = refusal(lambda: insert(store, new_sandbox("good"), replace(new_sandbox(), **broken)))
        assert "cannot be stored" in str(error)
        assert store.list("Sandbox") == ([], 0)

    @pytest.mark.parametrize("name", ["nul\0", "half\ud800", "'; drop table objects; --", "ä"])
    def test_asking_for_impossible_names_finds_nothing(self, store: SqlStore, name: str) -> None:
        insert(store, new_sandbox())
        assert store.get("Sandbox", "default", name) is None
        assert store.list(name)[0] == []
        assert list(store.events(uid=name)) == []
        with store.transaction() as transaction:
            assert transaction.get("Sandbox", name, "box") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
BIG = st.integers(-(10**60), 10**60)


@pytest.fixture(params=BACKENDS, scope="module")
def one_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    with make_backend(request.param, tmp_path_factory.mktemp("store")) as created:
        yield created.store()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(60))
@given(spec=st.dictionaries(st.text(), JSON | BIG, max_size=5), status=st.dictionaries(st.text(), JSON, max_size=5))
def test_any_json_comes_back_and_the_same_again_moves_nothing(
    one_store: SqlStore, spec: dict[str, object], status: dict[str, object]
) -> None:
    [stored] = insert(one_store, new_sandbox(spec=spec, status=status))
    sandbox = one_store.get("Sandbox", "default", "box")
    assert sandbox is not None
    assert repr(sorted_deep(sandbox.spec)) == repr(sorted_deep(spec))
    assert repr(sorted_deep(sandbox.status)) == repr(sorted_deep(status))
    before = one_store.revision()
    one_store.record(Writes(statuses=(StatusWrite(stored.ref, status),)))
    assert insert(one_store, replace(sandbox, resource_version=0)) == [sandbox]
    assert one_store.revision() == before


def sorted_deep(value: object) -> object:
    """With keys in order: the order of a mapping is not part of its value, but 1, 1.0 and True are three."""
    if isinstance(value, dict):
        return {key: sorted_deep(value[key]) for key in sorted(value)}
    return [sorted_deep(entry) for entry in value] if isinstance(value, list) else value


class TestTransactions:
    def test_an_exception_rolls_back_all_of_it(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox("kept"))

        def fail() -> None:
            with store.transaction() as transaction:
                transaction.put(new_sandbox("new"))
                transaction.put(replace(stored, labels={"a": "b"}))
                transaction.remove(stored)
                transaction.add_event(event(stored))
                transaction.flush()
                raise LookupError("of the caller")

        with pytest.raises(LookupError, match="of the caller"):
            fail()
        assert store.list("Sandbox") == ([stored], 1)
        assert (len(store.changes(0)), list(store.events())) == (1, [])

    def test_each_object_of_a_commit_has_a_revision_of_its_own(self, store: SqlStore) -> None:
        stored = insert(store, new_sandbox("a"), new_sandbox("b"))
        assert [entry.resource_version for entry in stored] == [1, 2]
        assert [entry.resource_version for entry in insert(store, new_sandbox("c"))] == [3]
        assert kinds_of(store.changes(0)) == [(1, "ADDED", "a"), (2, "ADDED", "b"), (3, "ADDED", "c")]

    def test_an_object_written_twice_in_a_commit_keeps_its_revision(self, store: SqlStore) -> None:
        a, b = insert(store, new_sandbox("a"), new_sandbox("b"))
        with store.transaction() as transaction:
            first = transaction.put(replace(a, labels={"x": "1"}))
            transaction.put(replace(b, labels={"x": "1"}))
            last = transaction.put(replace(first, labels={"x": "2"}))
            brief = transaction.put(new_sandbox("brief"))
            transaction.remove(brief)
        assert (first.resource_version, last.resource_version, store.revision()) == (3, 3, 4)
        assert kinds_of(store.changes(2)) == [(3, "MODIFIED", "a"), (4, "MODIFIED", "b")]
        assert store.get("Sandbox", "default", "a") == last

    def test_reading_or_putting_what_is_there_moves_nothing(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox(spec={"a": 1, "b": {"c": 2}}, labels={"x": "y"}))
        with store.transaction() as transaction:
            assert transaction.get("Sandbox", "default", "box") == stored
            assert transaction.put(replace(stored, spec={"b": {"c": 2}, "a": 1})) == stored
            assert transaction.put(replace(stored, resource_version=99)) == stored
        assert (store.revision(), len(store.changes(0))) == (1, 1)

    def test_what_comes_and_goes_in_a_commit_moves_nothing(self, store: SqlStore) -> None:
        insert(store, new_sandbox("a"))
        with store.transaction() as transaction:
            transaction.remove(transaction.put(new_sandbox("brief")))
        assert (store.revision(), len(store.changes(0))) == (1, 1)
        assert [stored.resource_version for stored in insert(store, new_sandbox("b"))] == [2]

    def test_reading_ahead_finds_what_reading_finds(self, store: SqlStore) -> None:
        owned = new_sandbox("owned", owner_references=({"kind": "Sandbox", "name": "a", "uid": "a"},))
        a, b, owned, stored = insert(
            store, new_sandbox("a"), new_sandbox("b"), owned, replace(new_sandbox("q"), kind="Quota")
        )
        with store.transaction() as transaction:
            transaction.put(replace(b, labels={"new": "1"}))
            keys = [("Sandbox", "default", name) for name in ("a", "b", "missing")]
            transaction.read_ahead(keys, [("Quota", "default"), ("Quota", "elsewhere"), ("Quota", None)], owned=True)
            transaction.read_ahead([], [])
            transaction.read_ahead([("Sandbox", "default", f"name-{number}") for number in range(600)])
            transactions = [transaction.get(*key) for key in keys]
            assert [entry and entry.labels for entry in transactions] == [{}, {"new": "1"}, None]
            assert transaction.list("Quota", "default") == transaction.list("Quota") == [stored]
            assert (transaction.list("Quota", "elsewhere"), transaction.owned()) == ([], [owned])
            assert transaction.list("Sandbox")[0] == a
        assert store.get("Sandbox", "default", "a") == a

    @pytest.mark.parametrize("value", [1.0, True, "1", [1], None])
    def test_values_that_python_calls_equal_are_a_change(self, store: SqlStore, value: object) -> None:
        insert(store, new_sandbox(spec={"a": 1}))
        insert(store, new_sandbox(spec={"a": value}))
        sandbox = store.get("Sandbox", "default", "box")
        assert sandbox is not None
        assert repr(sandbox.spec["a"]) == repr(value)
        assert store.revision() == 2

    def test_what_a_reader_does_to_its_copy_is_not_what_is_stored(self, store: SqlStore) -> None:
        insert(store, new_sandbox(spec={"a": [1]}))
        with store.transaction() as transaction:
            sandbox = transaction.get("Sandbox", "default", "box")
            assert sandbox is not None
            sandbox.spec["a"].append(2)
            transaction.put(sandbox)
        assert store.get("Sandbox", "default", "box").spec == {"a": [1, 2]}  # type: ignore[union-attr]

    def test_it_reads_what_it_wrote(self, store: SqlStore) -> None:
        a, b = insert(store, new_sandbox("a"), new_sandbox("b"))
        with store.transaction() as transaction:
            transaction.put(new_sandbox("c"))
            transaction.remove(a)
            changed = transaction.put(replace(b, labels={"x": "y"}))
            assert [stored.name for stored in transaction.list("Sandbox")] == ["b", "c"]
            assert transaction.get("Sandbox", "default", "a") is None
            assert transaction.get("Sandbox", "default", "b") == changed
            assert transaction.list("Sandbox", "other") == []
            # Only its own eyes: nobody else sees it before the commit.
            assert store.list("Sandbox") == ([a, b], 2)
        assert [stored.name for stored in store.list("Sandbox")[0]] == ["b", "c"]

    def test_it_reads_the_instances(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox())
        store.record(Writes(instances=(instance(stored),)))
        with store.transaction() as transaction:
            assert list(transaction.instances()) == list(store.instances())

    @pytest.mark.parametrize("listed", [False, True])
    def test_a_name_belongs_to_one_uid(self, store: SqlStore, listed: bool) -> None:
        insert(store, new_sandbox())

        def take() -> None:
            with store.transaction() as transaction:
                transaction.put(new_sandbox("fine"))
                if listed:
                    transaction.list("Sandbox")
                transaction.put(new_sandbox(uid="another"))

        assert isinstance(refusal(take), Conflict)
        assert len(store.list("Sandbox")[0]) == 1

    @pytest.mark.parametrize("listed", ["never", "before", "after"])
    def test_a_uid_belongs_to_one_name(self, store: SqlStore, listed: str) -> None:
        [stored] = insert(store, new_sandbox())

        def rename() -> None:
            with store.transaction() as transaction:
                if listed == "before":
                    transaction.list("Sandbox")
                transaction.put(replace(stored, name="renamed"))
                if listed == "after":
                    transaction.list("Sandbox")

        assert isinstance(refusal(rename), Conflict)
        assert store.list("Sandbox") == ([stored], 1)

    def test_a_name_can_be_taken_again_in_one_commit(self, store: SqlStore) -> None:
        [old] = insert(store, new_sandbox())
        with store.transaction() as transaction:
            transaction.remove(old)
            [new] = [transaction.put(new_sandbox(uid="second"))]
        assert store.get("Sandbox", "default", "box") == new
        assert [(change.type, change.obj.uid) for change in store.changes(1)] == [
            ("DELETED", old.uid),
            ("ADDED", "second"),
        ]

    def test_removing_takes_the_instances_along(self, store: SqlStore) -> None:
        a, b = insert(store, new_sandbox("a"), new_sandbox("b"))
        store.record(Writes(instances=(instance(a), instance(b))))
        with store.transaction() as transaction:
            transaction.remove(a)
        assert [entry.parent_name for entry in store.instances()] == ["b"]

    def test_removing_what_is_gone_or_anothers_does_nothing(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox())
        with store.transaction() as transaction:
            transaction.remove(new_sandbox("never"))
            transaction.remove(new_sandbox(uid="another"))
            transaction.put(new_sandbox("brief"))
            transaction.remove(new_sandbox("brief"))
        assert store.list("Sandbox") == ([stored], 1)

    def test_a_deletion_tells_the_last_state(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox())
        with store.transaction() as transaction:
            last = transaction.put(replace(stored, deleted_at=5.0))
            transaction.remove(stored)
        assert list(store.changes(1)) == [Change(2, "DELETED", last)]


class TestFollowing:
    def test_a_limit_may_come_in_the_middle_of_a_commit(self, store: SqlStore) -> None:
        insert(store, *(new_sandbox(f"a{number}") for number in range(3)))
        insert(store, new_sandbox("b"))
        insert(store, *(new_sandbox(f"c{number}") for number in range(2)))
        for limit, observed in ((1, 1), (3, 3), (4, 4), (5, 5), (6, 6), (1000, 6), (1 << 70, 6)):
            assert len(store.changes(0, limit=limit)) == observed, limit
        assert kinds_of(store.changes(4, limit=1)) == [(5, "ADDED", "c0")]

    def test_whoever_goes_on_after_any_event_of_a_commit_misses_none(self, store: SqlStore) -> None:
        stored, changed, removed = insert(store, new_sandbox("kept"), new_sandbox("changed"), new_sandbox("removed"))
        with store.transaction() as transaction:
            transaction.put(new_sandbox("new"))
            transaction.put(replace(changed, labels={"x": "y"}))
            transaction.remove(removed)
            transaction.put(new_sandbox("removed", uid="another"))
            transaction.put(replace(stored, kind="Quota", uid="of another kind"))
        store.record(Writes(statuses=(StatusWrite(stored.ref, {"a": 1}), StatusWrite(changed.ref, {"a": 1}))))
        all_ = list(store.changes(0))
        assert [change.revision for change in all_] == list(range(1, len(all_) + 1)) == list(range(1, 11))
        for at, entry in enumerate(all_, start=1):
            assert entry.obj.resource_version == entry.revision
            assert list(store.changes(entry.revision)) == all_[at:]
        assert store.prune(keep_changes=4, events_before=0) == 6
        assert list(store.changes(6)) == all_[6:]
        assert isinstance(refusal(lambda: store.changes(5)), ChangesGone)

    def test_changes_of_older_versions_that_share_a_revision_stay_together(self, backend: Backend) -> None:
        store = backend.store()
        insert(store, new_sandbox("a"), new_sandbox("b"), new_sandbox("c"))
        with backend.database() as database, database.writing() as connection:
            connection.execute(update(changes).where(changes.c.revision == 3).values(revision=2, position=1))
        assert kinds_of(store.changes(0, limit=2)) == [(1, "ADDED", "a"), (2, "ADDED", "b"), (2, "ADDED", "c")]
        assert store.prune(keep_changes=1, events_before=0) == 1

    def test_pruned_changes_are_gone_and_later_ones_not(self, store: SqlStore) -> None:
        for number in range(5):
            insert(store, new_sandbox(f"a{number}"), new_sandbox(f"b{number}"))
        assert store.prune(keep_changes=3, events_before=0) == 7
        assert kinds_of(store.changes(7))[0] == (8, "ADDED", "b3")
        assert len(store.changes(7)) == 3
        assert isinstance(refusal(lambda: store.changes(6)), ChangesGone)
        assert store.prune(keep_changes=3, events_before=0) == 0
        assert store.prune(keep_changes=0, events_before=0) == 3
        assert list(store.changes(10)) == []
        assert "list again" in str(refusal(lambda: store.changes(9)))
        insert(store, new_sandbox("later"))
        assert kinds_of(store.changes(10)) == [(11, "ADDED", "later")]
        assert len(store.list("Sandbox")[0]) == 11

    def test_a_revision_that_was_never_reached_is_gone_too(self, store: SqlStore) -> None:
        """An older database was put in its place: what the follower knows is not true any more."""
        insert(store, new_sandbox())
        assert isinstance(refusal(lambda: store.changes(2)), ChangesGone)
        assert isinstance(refusal(lambda: store.changes(1 << 70)), ChangesGone)

    def test_eight_writers_and_a_follower_that_misses_nothing(self, backend: Backend) -> None:
        commits, store = 25, backend.store(wait_seconds=60)  # as long as its children have: the locks are not fair
        children = [backend.child("write", f"p{number}", commits) for number in range(4)]
        assert [child.says() for child in children] == ["ready"] * 4
        threads = [in_thread(lambda who=number: write_pairs(store, f"t{who}", commits)) for number in range(4)]
        for child in children:
            child.go()
        observed = follow(store, until=(4 + 4 * 2) * commits)
        assert [child.says() for child in children] == ["done"] * 4
        for thread in threads:
            thread.join()
        names = [change.obj.name for change in observed]
        assert len(names) == len(set(names)) == 4 * commits + 4 * 2 * commits
        assert [change.revision for change in observed] == list(range(1, 12 * commits + 1))
        assert all(change.obj.resource_version == change.revision for change in observed)

    def test_a_lean_list_lacks_only_the_last_applied(self, store: SqlStore) -> None:
        objects = insert(
            store,
            new_sandbox("a", last_applied={"x": 1}),
            new_sandbox("b", last_applied={"x": 2}),
            new_sandbox("c", spec={"y": 1}),
        )
        observed, revision = store.list("Sandbox", lean=True)
        assert (observed, revision) == ([replace(stored, last_applied=None) for stored in objects], 3)
        assert observed[0].spec is observed[1].spec

    def test_a_list_is_one_moment(self, store: SqlStore) -> None:
        """Two objects that always change together are never seen apart, and the revision is theirs."""
        insert(store, new_sandbox("a"), new_sandbox("b"))
        writer = in_thread(lambda: write_lockstep(store, 60))
        torn = []
        while writer.is_alive():
            objects, revision = store.list("Sandbox")
            if [stored.resource_version for stored in objects] != [revision - 1, revision]:
                torn.append((objects, revision))
        assert torn == []
        assert store.revision() == 122


def write_pairs(store: SqlStore, writer: str, commits: int) -> None:
    for number in range(commits):
        insert(store, new_sandbox(f"{writer}-{number}-a"), new_sandbox(f"{writer}-{number}-b"))


def write_lockstep(store: SqlStore, commits: int) -> None:
    for number in range(commits):
        insert(store, *(new_sandbox(name, labels={"round": str(number)}) for name in "ab"))


def follow(store: SqlStore, until: int) -> list[Change]:
    observed: list[Change] = []
    reached = 0
    while reached < until:
        observed += store.changes(reached, limit=3)
        reached = observed[-1].revision if observed else 0
    return observed


class TestTurns:
    """record(): what one pass of the loop writes."""

    def test_nothing_to_write_asks_nothing(self, backend: Backend) -> None:
        assert SqlStore(backend.url).record(Writes()) == {}

    def test_a_status_moves_the_version_but_not_the_generation(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox(generation=3, finalizers=("f",)))
        status = {"observedGeneration": 3}
        assert store.record(Writes(statuses=(StatusWrite(stored.ref, status),))) == {}
        expected = replace(stored, status=status, resource_version=2)
        assert store.get("Sandbox", "default", "box") == expected
        assert list(store.changes(1)) == [Change(2, "MODIFIED", expected)]

    def test_a_status_that_is_the_same_moves_nothing(self, store: SqlStore) -> None:
        a, b = insert(store, new_sandbox("a", status={"x": 1, "y": 2}), new_sandbox("b"))
        store.record(Writes(statuses=(StatusWrite(a.ref, {"y": 2, "x": 1}),)))
        assert store.revision() == 2
        store.record(Writes(statuses=(StatusWrite(a.ref, {"y": 2, "x": 1}), StatusWrite(b.ref, {"x": 1}))))
        assert kinds_of(store.changes(2)) == [(3, "MODIFIED", "b")]

    def test_a_later_spec_is_not_undone_by_a_status(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox())
        insert(store, replace(stored, spec={"new": True}, generation=2))
        store.record(Writes(statuses=(StatusWrite(stored.ref, {"observedGeneration": 1}),)))
        sandbox = store.get("Sandbox", "default", "box")
        assert sandbox is not None
        assert (sandbox.spec, sandbox.generation, sandbox.status) == ({"new": True}, 2, {"observedGeneration": 1})

    def test_writes_for_what_is_gone_are_dropped(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox("there"))
        sandbox, reborn = new_sandbox("gone"), new_sandbox("there", uid="its predecessor")
        result = store.record(
            Writes(
                statuses=(StatusWrite(sandbox.ref, {"a": 1}), StatusWrite(reborn.ref, {"a": 1})),
                instances=(instance(sandbox, version=4), instance(reborn), replace(instance(stored), name="kept")),
                finalized=((sandbox.ref, "f"), (reborn.ref, "f")),
                events=(event(sandbox),),
            )
        )
        assert list(result) == [stored.uid]
        assert store.list("Sandbox") == ([stored], 1)
        assert [entry.name for entry in store.instances()] == ["kept"]
        assert [entry.ref for entry in store.events()] == [sandbox.ref]

    def test_instances_come_back_as_they_were(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox())
        memory = instance_state(
            restarts=3,
            crashes=2,
            last_end=Termination("c", 137, "OOMKilled", 1.25, 2.5),
            failure=Failure(4, 1_700_000_000.5, "Why", "because\u2028", 2, terminal=True),
            image_id="sha256:0",
            use=StoredUse(1_700_000_000.25, open=True, noted_at=1_700_000_001.5, generation=2),
            idled_generation=2,
            stop_reason="IdleReaped",
        )
        given_ = instance(stored, state=memory, reserves=Limits(1, 1 << 46, 3, 4), host="b")
        assert store.record(Writes(instances=(given_,))) == {stored.uid: replace(given_, version=1)}
        assert list(store.instances()) == [replace(given_, version=1)]
        assert store.revision() == 1

    def test_any_field_of_an_instance_can_change(self, store: SqlStore) -> None:
        first, second = insert(store, new_sandbox(), new_sandbox("second"))
        now = instance(first, member_uid="own")
        changes: list[dict[str, Any]] = [
            {},
            {"state": instance_state(restarts=1)},
            {"state": instance_state(pool="p", user_id=2_000_000, ready_key="k")},
            {"created_at": 9.5},
            {"role": "warm"},
            {"host": "b"},
            {"reserves": Limits(1, 2, 3, 4, 5, 6)},
            {"name": "pdk-other", "parent_name": "other"},
            {"parent_uid": second.uid, "parent_kind": "SandboxPool", "namespace": "team"},
        ]
        for change in changes:
            now = replace(now, **change)
            [now] = store.record(Writes(instances=(now,))).values()
            assert list(store.instances()) == [now]
            assert store.instance(now.name) == now
            assert list(store.instances(host=now.host)) == list(store.instances(["own"])) == [now]
        assert now.version == len(changes)

    def test_an_instance_is_compared_and_set(self, store: SqlStore) -> None:
        a, b = insert(store, new_sandbox("a"), new_sandbox("b"))
        first = store.record(Writes(instances=(instance(a), instance(b))))
        ours = replace(first[a.uid], state=instance_state(restarts=1))
        assert store.record(Writes(instances=(ours,)))[a.uid].version == 2
        for stale in (ours, instance(a), replace(ours, version=3), replace(instance(b), member_uid="new", version=1)):
            writes = Writes(
                instances=(replace(first[b.uid], state=instance_state(restarts=9)), stale),
                statuses=(StatusWrite(b.ref, {"x": 1}),),
                events=(event(b),),
            )
            error = refusal(lambda writes=writes: store.record(writes))
            assert isinstance(error, Conflict)
            assert "read it again" in str(error)
        assert [(entry.version, entry.state.runs.restarts) for entry in store.instances()] == [(2, 1), (1, 0)]
        assert [entry.uid for entry in store.instances([b.uid, "nobody"])] == [b.uid]
        assert list(store.instances([])) == []
        assert (store.revision(), list(store.events())) == (2, [])

    def test_no_two_instances_have_one_user_id(self, store: SqlStore) -> None:
        a, b = insert(store, new_sandbox("a"), new_sandbox("b"))
        memory = instance_state(user_id=2_000_000)
        [ours] = store.record(Writes(instances=(instance(a, state=memory),))).values()
        writes = Writes(instances=(instance(b, state=memory),), events=(event(b),))
        assert isinstance(refusal(lambda: store.record(writes)), Conflict)
        assert [entry.uid for entry in store.instances()] == [a.uid]
        both = Writes(instances=(replace(ours, state=instance_state()), instance(b)))
        store.record(both)
        with store.transaction() as transaction:
            transaction.remove(a)
        [remaining] = store.instances()
        store.record(Writes(instances=(replace(remaining, state=memory),)))
        assert [entry.state.security.user_id for entry in store.instances()] == [2_000_000]

    def test_a_user_id_is_given_once_on_each_host(self, store: SqlStore) -> None:
        a, b = insert(store, new_sandbox("a"), new_sandbox("b"))
        memory = instance_state(user_id=2_000_000)
        store.record(Writes(instances=(instance(a, state=memory), instance(b, state=memory, host="b"))))
        assert {entry.host: entry.state.security.user_id for entry in store.instances()} == dict.fromkeys(
            ("host", "b"), 2_000_000
        )
        occupied = replace(store.instances([b.uid])[0], host="host")
        assert isinstance(refusal(lambda: store.record(Writes(instances=(occupied,)))), Conflict)

    def test_instances_are_read_by_host(self, store: SqlStore) -> None:
        objects = insert(store, *(new_sandbox(name) for name in "cab"))
        hosts = ("b", "host", "b")
        store.record(
            Writes(instances=tuple(instance(stored, host=at) for stored, at in zip(objects, hosts, strict=True)))
        )
        assert [entry.name for entry in store.instances(host="b")] == ["pdk-b", "pdk-c"]
        assert [entry.name for entry in store.instances()] == ["pdk-a", "pdk-b", "pdk-c"]
        assert [entry.name for entry in store.instances([objects[0].uid, objects[1].uid], host="b")] == ["pdk-c"]
        assert list(store.instances(host="none")) == []
        counts = [store.count_instances(entry) for entry in (None, "host", "b", "none")]
        assert counts == [3, 1, 2, 0]
        amount = Amount(500, 1 << 29, 64, 1)
        reservations = store.reservations("", host_scope("b"), "default", host_scope("none"))
        assert reservations == {
            "": amount,
            "host/b": amount + amount,
            "default": amount + amount + amount,
            "host/none": Amount(),
        }
        assert store.reservations() == {}

    def test_an_object_goes_with_its_last_finalizer(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox(deleted_at=9.0, finalizers=("one", "two")))
        store.record(Writes(instances=(instance(stored),)))
        store.record(Writes(finalized=((stored.ref, "one"),)))
        remaining = replace(stored, finalizers=("two",), resource_version=2)
        assert store.get("Sandbox", "default", "box") == remaining
        assert len(store.instances()) == 1

        last = StatusWrite(stored.ref, {"bye": True})
        finalized = (stored.ref, "two")
        result = store.record(
            Writes(statuses=(last,), instances=(instance(stored, version=1),), finalized=(finalized,))
        )
        assert result == {}
        assert (store.list("Sandbox"), list(store.instances())) == (([], 3), [])
        expected = replace(remaining, finalizers=(), status={"bye": True}, resource_version=3)
        assert list(store.changes(2)) == [Change(3, "DELETED", expected)]

    def test_an_object_that_is_not_to_be_deleted_only_loses_the_finalizer(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox(finalizers=("one",)))
        store.record(Writes(finalized=((stored.ref, "one"), (stored.ref, "unknown"))))
        assert store.list("Sandbox") == ([replace(stored, finalizers=(), resource_version=2)], 2)

    def test_a_deletion_that_the_planner_asks_for_waits_for_the_finalizers(self, store: SqlStore) -> None:
        stored, free = insert(store, new_sandbox(finalizers=("f",)), new_sandbox("free"))
        store.record(Writes(deletions=(Deletion(stored.ref, 1, 7.0), Deletion(free.ref, 1, 7.0))))
        sandbox = store.get("Sandbox", "default", "box")
        assert sandbox is not None
        assert sandbox.deleted_at == 7.0
        assert store.get("Sandbox", "default", "free") is None
        revision = store.revision()
        store.record(Writes(deletions=(Deletion(stored.ref, 1, 9.0), Deletion(free.ref, 1, 9.0))))
        assert store.revision() == revision

    def test_a_deletion_is_void_when_the_spec_has_moved_on(self, store: SqlStore) -> None:
        insert(store, new_sandbox(finalizers=("f",), generation=2))
        store.record(Writes(deletions=(Deletion(new_sandbox().ref, 1, 7.0),)))
        sandbox = store.get("Sandbox", "default", "box")
        assert sandbox is not None
        assert sandbox.deleted_at is None

    def test_a_thousand_of_everything_is_one_commit(self, store: SqlStore) -> None:
        stored = insert(
            store, *(new_sandbox(f"b{number:04}", deleted_at=1.0, finalizers=("f",)) for number in range(1000))
        )
        store.record(
            Writes(
                statuses=tuple(StatusWrite(entry.ref, {"x": 1}) for entry in stored),
                instances=tuple(instance(entry) for entry in stored),
                events=tuple(event(entry) for entry in stored),
            )
        )
        objects, revision = store.list("Sandbox")
        assert [entry.resource_version for entry in objects] == list(range(1001, 2001))
        assert (revision, len(store.changes(1000)), len(store.instances())) == (2000, 1000, 1000)
        store.record(Writes(finalized=tuple((entry.ref, "f") for entry in stored)))
        assert (store.list("Sandbox"), list(store.instances())) == (([], 3000), [])


class TestEvents:
    def test_equal_ones_are_counted(self, store: SqlStore) -> None:
        [stored] = insert(store, new_sandbox())
        with store.transaction() as transaction:
            transaction.add_event(event(stored, at=10.0))
            transaction.add_event(event(stored, "other", at=11.0))
        store.record(Writes(events=(event(stored, at=12.0), event(stored, at=13.0, count=3))))
        store.record(Writes(events=(event(stored, at=5.0),)))
        counted = event(stored, at=13.0, count=6, first_at=5.0)
        assert list(store.events()) == [event(stored, "other", at=11.0, first_at=11.0), counted]
        assert store.revision() == 1

    def test_reason_type_and_object_tell_them_apart(self, store: SqlStore) -> None:
        a, b = new_sandbox("a"), new_sandbox("b", "other")
        given_ = (event(a), event(b), event(a, reason="Killed"), replace(event(a), type="Warning"))
        store.record(Writes(events=given_))
        assert [entry.count for entry in store.events()] == [1, 1, 1, 1]
        assert [entry.ref.name for entry in store.events(namespace="other")] == ["b"]
        assert len(store.events(uid=a.uid)) == 3
        assert len(store.events(namespace="other", uid=a.uid)) == 0
        assert len(store.events(kind="sandbox", name="a", limit=2)) == 2
        assert len(store.events(kind="Pool", name="a")) == 0
        assert [entry.ref.name for entry in store.events(name="b")] == ["b"]
        assert len(store.events(kind="SANDBOX")) == 4

    def test_the_newest_ones_come_last(self, store: SqlStore) -> None:
        store.record(
            Writes(events=tuple(event(new_sandbox(), f"number {at}", at=float(at)) for at in (3, 1, 2, 4, 4.5)))
        )
        assert [entry.at for entry in store.events(limit=3)] == [3, 4, 4.5]
        assert list(store.events(limit=0)) == []

    @pytest.mark.parametrize("count", [249, 250, 251, 500, 620])
    def test_many_are_a_sequence_as_few_are(self, store: SqlStore, count: int) -> None:
        events = [event(new_sandbox(), f"“number {at}”", at=at + 0.25, first_at=at + 0.25) for at in range(count)]
        store.record(Writes(events=tuple(events)))
        observed = store.events(limit=5000)
        assert (len(observed), list(observed), list(reversed(observed))) == (count, events, events[::-1])
        for at in (0, 1, 119, 120, 248, -1, -120, -249, -count, count - 1):
            assert observed[at] == events[at]
        for some in (slice(None), slice(-7, None), slice(3, 260, 50), slice(0, 0)):
            assert list(observed[some]) == events[some]
        for at in (count, -count - 1):
            with pytest.raises(IndexError):
                observed[at]

    def test_of_one_moment_they_keep_their_order(self, store: SqlStore) -> None:
        store.record(Writes(events=tuple(event(new_sandbox(), word) for word in ("made", "started", "ready"))))
        assert [entry.message for entry in store.events()] == ["made", "started", "ready"]

    def test_whatever_an_engine_says_can_be_kept(self, store: SqlStore) -> None:
        store.record(Writes(events=(event(new_sandbox(), "nul \0, half \ud800, " + "long " * 5000),)))
        [stored] = store.events()
        assert stored.message.startswith("nul \ufffd, half ?, long")
        assert len(stored.message) > 25_000

    def test_old_ones_are_pruned(self, store: SqlStore) -> None:
        store.record(Writes(events=tuple(event(new_sandbox(), str(at), at=float(at)) for at in range(5))))
        assert store.prune(keep_changes=10, events_before=3.0) == 3
        assert [entry.at for entry in store.events()] == [3, 4]


class TestTogether:
    """Several processes on one database."""

    def test_a_new_store_opened_by_many_at_once_is_made_once(self, backend: Backend) -> None:
        children = [backend.child("identify") for _ in range(4)]
        assert [child.says() for child in children] == ["ready"] * 4
        for child in children:
            child.go()
        ids = {child.says() for child in children}
        assert ids == {backend.store().instance_id}

    def test_of_many_that_insert_one_name_one_wins(self, backend: Backend, store: SqlStore) -> None:
        children = [backend.child("claim", f"uid-{number}") for number in range(4)]
        assert [child.says() for child in children] == ["ready"] * 4
        for child in children:
            child.go()
        assert sorted(child.says() for child in children) == ["Conflict"] * 3 + ["won"]
        assert (len(store.list("Sandbox")[0]), store.revision()) == (1, 1)

    def test_a_write_waits_for_another_process_but_not_for_ever(self, backend: Backend) -> None:
        store = backend.store(wait_seconds=0.2)
        holder = backend.child("hold")
        assert holder.says() == "holding"
        error = refusal(lambda: insert(store, new_sandbox()))
        assert not isinstance(error, Conflict)
        assert "held by another process" in str(error)
        assert "try again" in str(error)
        assert "try again" in store.ping()
        # Reading goes on, and sees what was committed.
        assert store.list("Sandbox") == ([], 0)
        holder.go()
        assert holder.says() == "done"
        assert store.ping() == ""
        assert [stored.resource_version for stored in insert(store, new_sandbox())] == [1]
        assert [stored.name for stored in store.list("Sandbox")[0]] == ["box"]

    def test_a_writer_that_is_killed_leaves_nothing(self, backend: Backend, store: SqlStore) -> None:
        holder = backend.child("hold")
        assert holder.says() == "holding"
        holder.kill()
        assert [stored.resource_version for stored in insert(store, new_sandbox())] == [1]
        assert [stored.name for stored in store.list("Sandbox")[0]] == ["box"]

    def test_a_write_inside_a_write_ends_in_words(self, backend: Backend) -> None:
        store = backend.store(wait_seconds=0.1)

        def nested() -> None:
            with store.transaction() as transaction:
                transaction.put(new_sandbox("outer"))
                insert(store, new_sandbox("inner"))

        assert "try again" in str(refusal(nested))
        assert store.list("Sandbox") == ([], 0)


class Tally:
    """A Meter that remembers."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], float] = {}
        self.observed: list[tuple[str, float, str]] = []

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        key = (name.removeprefix("paddock_store_"), *labels.values())
        self.counts[key] = self.counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self.observed.append((name, seconds, labels["operation"]))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        raise AssertionError(name)


def test_every_call_is_counted_and_timed(backend: Backend) -> None:
    tally, ticks = Tally(), iter(range(1000))
    store = backend.store(meter=tally, timer=lambda: float(next(ticks)))
    stored = insert(store, new_sandbox())
    store.list("Sandbox")
    store.list("Sandbox")
    refusal(lambda: store.changes(7))
    refusal(lambda: insert(store, replace(stored[0], uid="another")))
    assert tally.counts == {
        ("operations_total", "open"): 1,
        ("operations_total", "transaction"): 2,
        ("operations_total", "list"): 2,
        ("operations_total", "changes"): 1,
        ("operation_errors_total", "changes", "gone"): 1,
        ("operation_errors_total", "transaction", "conflict"): 1,
    }
    assert tally.observed[:2] == [
        ("paddock_store_operation_duration_seconds", 1.0, "open"),
        ("paddock_store_operation_duration_seconds", 1.0, "transaction"),
    ]
    assert len(tally.observed) == 6


def test_commits_of_others_are_followed(backend: Backend) -> None:
    """A file has one daemon: there is nobody else to follow."""
    wakes: list[int] = []
    arguments: list[str] = []
    store, second = backend.store(), backend.store()
    end = store.follow(lambda: wakes.append(store.revision()), arguments.append)
    other_end = second.follow(lambda: None)
    with second.transaction() as transaction:
        transaction.put(new_sandbox())
        transaction.tell("its words")
    if store.figures().backend == "postgresql":
        wait_for("it is woken for the commit", lambda: 1 in wakes and arguments)
        assert arguments == ["its words"]
    with second.transaction() as transaction:
        transaction.put(new_sandbox("too-much"))
        transaction.tell("x" * 10_000)  # it is left out, and the commit is as good
    if store.figures().backend == "postgresql":
        wait_for("it is woken for the commit", lambda: 2 in wakes)
        assert arguments == ["its words"]
    end()
    before = len(wakes)
    insert(second, new_sandbox("late"))
    assert len(wakes) == before
    other_end()


def test_many_threads_share_one_store(backend: Backend) -> None:
    """More threads than connections, reading and writing: nobody fails, nothing is lost."""
    store = backend.store(wait_seconds=60)
    failed: list[StoreError] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                insert(store, new_sandbox(f"{number}-{turn}"))
                sandbox: StoredObject | None = store.get("Sandbox", "default", f"{number}-{turn}")
                assert sandbox is not None
                store.list("Sandbox")
        except StoreError as error:
            failed.append(error)

    threads = [in_thread(lambda number=number: work(number)) for number in range(40)]
    for thread in threads:
        thread.join()
    assert failed == []
    assert (len(store.list("Sandbox")[0]), store.revision()) == (200, 200)


def test_a_transaction_sees_the_instances_it_writes(store: SqlStore) -> None:
    stored, second = insert(store, new_sandbox("one"), new_sandbox("other"))
    store.record(Writes(instances=(instance(stored), instance(second, role="warm"))))
    with store.transaction() as transaction:
        both = Amount(1000, 1 << 30, 128, 1)
        assert transaction.reservations("default", "", "none") == {"default": both, "": both, "none": Amount()}
        (kept_instance,) = transaction.instances_of([second.uid, "none"]).values()
        transaction.put_instance(replace(kept_instance, role="sandbox", reserves=Limits(700, 3 << 29, 64)))
        third = instance(new_sandbox("third", "else"), member_uid="third-uid")
        transaction.put_instance(replace(third, parent_uid=stored.uid))
        assert transaction.instances_of([second.uid])[second.uid].role == "sandbox"
        reservations = transaction.reservations("default", "")
        assert reservations == {"default": Amount(1200, 4 << 29, 128, 2), "": Amount(1700, 5 << 29, 192, 3)}


def test_a_connection_that_is_in_use_when_all_are_closed_is_closed_behind_it(backend: Backend) -> None:
    backend.store()
    with backend.database() as database:
        with database.reading() as connection:
            driver: Any = connection.connection.dbapi_connection
            database.close()
            assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
        with pytest.raises(Exception, match="closed"):
            driver.execute("SELECT 1")
        with database.reading() as connection:
            dbapi_connection: Any = connection.connection.dbapi_connection
        assert dbapi_connection.execute("SELECT 1").fetchone() == (1,), "those after it are kept as ever"
