"""Contract of every store's audit log: with the commit or not at all, chained, pruned at one end only."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from controller.kinds.access.audit import AuditEntry
from controller.store.sql_store import SqlStore
from tests.contract.store_worlds import BACKENDS, World, box, make_world


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with make_world(request.param, tmp_path) as made:
        yield made


def entry(number: int) -> AuditEntry:
    return AuditEntry(float(number), f"actor {number}", "here", "create", "Sandbox", "default", f"box-{number}")


def filled(world: World, count: int = 5) -> SqlStore:
    store = world.store()
    store.audit.append([entry(number) for number in range(1, count + 1)])
    return store


def names(store: SqlStore, **query: float) -> list[str]:
    return [each.name for each in store.audit.entries(**query)]  # type: ignore[arg-type]


def test_entries_are_kept_in_order_and_found_by_time(world: World) -> None:
    store = filled(world)
    assert names(store) == [f"box-{number}" for number in range(1, 6)]
    assert names(store, since=4.0) == ["box-4", "box-5"]
    assert names(store, limit=2) == ["box-4", "box-5"]
    found = store.audit.entries()
    assert [each.id for each in found] == [1, 2, 3, 4, 5]
    report = world.store().audit.verify()
    assert (report.problem, report.entries, report.last_id, report.last_hash) == ("", 5, 5, found[-1].hash)


def test_an_empty_log_is_whole(world: World) -> None:
    assert world.store().audit.verify().problem == ""


def test_an_entry_is_there_if_and_only_if_the_commit_is(world: World) -> None:
    store = world.store()
    with suppress(ZeroDivisionError), store.transaction() as transaction:
        transaction.put(box())
        transaction.audit(entry(1))
        raise ZeroDivisionError
    assert names(store) == []
    with store.transaction() as transaction:
        transaction.put(box())
        transaction.audit(entry(2))
    assert names(store) == ["box-2"]
    assert store.audit.verify().problem == ""


def test_stores_continue_one_chain_in_turn(world: World) -> None:
    """Each knows the end as it wrote it itself; what others wrote, or was rolled back, is read."""
    one, other = world.store(), world.store()
    for number in range(1, 4):
        one.audit.append([entry(number), entry(number)])
        with suppress(ZeroDivisionError), one.transaction() as transaction:
            transaction.audit(entry(10 + number))
            transaction.flush()
            raise ZeroDivisionError
        one.audit.append([entry(number)])
        other.audit.append([entry(20 + number)])
    assert [each.id for each in other.audit.entries()] == list(range(1, 13))
    assert one.audit.verify().problem == other.audit.verify().problem == ""


def test_odd_text_is_kept_and_still_verified(world: World) -> None:
    store = world.store()
    store.audit.append([AuditEntry(0.1, "a\0b\ud800", "", "use", detail={"é": ["\u2028", 1.5, None]})])
    assert store.audit.verify().problem == ""
    assert store.audit.entries()[0].detail == {"é": ["\u2028", 1.5, None]}


@pytest.mark.parametrize(
    ("done", "said"),
    [
        ("UPDATE audit SET actor = 'nobody' WHERE id = 3", "entry 3 was changed"),
        ("UPDATE audit SET outcome = 'refused' WHERE id = 5", "entry 5 was changed"),
        ("UPDATE audit SET at = 9 WHERE id = 1", "entry 1 was changed"),
        ("UPDATE audit SET detail = '{\"x\":1}' WHERE id = 2", "entry 2 was changed"),
        ("DELETE FROM audit WHERE id = 3", "entry 3 is missing"),
        ("DELETE FROM audit WHERE id = 1", "entry 1 is missing"),
        ("DELETE FROM audit WHERE id > 3", "the log ends at entry 3, and 5 were written"),
        ("DELETE FROM audit", "the log ends at entry 0, and 5 were written"),
        ("DELETE FROM audit_chain", "the end of the chain is missing"),
        ("UPDATE audit SET id = 9 WHERE id = 3", "entry 3 is missing"),
    ],
)
def test_whatever_is_done_to_it_is_noticed(world: World, done: str, said: str) -> None:
    store = filled(world)
    with world.database() as database, database.writing() as connection:
        connection.exec_driver_sql(done)
    assert said in store.audit.verify().problem


def test_pruning_leaves_a_chain_that_can_be_verified(world: World) -> None:
    store = filled(world)
    assert store.audit.prune(before=3.0, keep=1000) == 2
    assert store.audit.prune(before=3.0, keep=1000) == 0
    report = store.audit.verify()
    assert (report.problem, report.entries, report.pruned, report.last_id) == ("", 3, 2, 5)
    assert store.audit.prune(before=0.0, keep=1) == 2
    store.audit.append([entry(6)])
    assert names(store) == ["box-5", "box-6"]
    assert store.audit.verify().problem == ""
    assert store.audit.prune(before=100.0, keep=0) == 2
    assert store.audit.verify().problem == ""
    store.audit.append([entry(7)])
    assert [each.id for each in store.audit.entries()] == [7]
    assert store.audit.verify().problem == ""


def test_pruning_does_not_hide_what_was_taken_out(world: World) -> None:
    store = filled(world)
    store.audit.prune(before=3.0, keep=1000)
    with world.database() as database, database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM audit WHERE id = 3")
    assert "entry 3 is missing" in store.audit.verify().problem


def by(store: SqlStore, *actors: str) -> None:
    start = len(store.audit.entries(limit=10_000))
    made = [entry(number) for number in range(start + 1, start + 1 + len(actors))]
    store.audit.append([replace(each, actor=actor) for each, actor in zip(made, actors, strict=True)])


def left(store: SqlStore, actor: str) -> int:
    return sum(each.actor == actor for each in store.audit.entries())


def test_one_caller_s_entries_do_not_push_out_another_s(world: World) -> None:
    store = world.store()
    by(store, "quiet", *["loud"] * 20, "quiet", *["loud"] * 1500, "other", *["loud"] * 30, "quiet")
    before = {each.id: each.hash for each in store.audit.entries(limit=10_000)}
    assert store.audit.prune(before=0.0, keep=50) == 1550 - 46
    assert (left(store, "quiet"), left(store, "other"), left(store, "loud")) == (3, 1, 46)
    kept = [each for each in store.audit.entries() if each.actor in ("quiet", "other", "loud")]
    assert all(before[each.id] == each.hash for each in kept)
    newest = [each.id for each in kept if each.actor == "loud"]
    assert newest == [number for number in sorted(before) if number in newest][-46:], "the oldest of theirs are gone"
    report = store.audit.verify()
    assert (report.problem, report.entries - 50 > 0, report.thinned) == ("", True, 1550 - 46)
    assert store.audit.prune(before=0.0, keep=50) == 0, "there is nothing more to drop"
    by(store, "later")
    assert world.store().audit.verify().problem == ""


def test_several_loud_callers_share_what_the_quiet_ones_leave(world: World) -> None:
    store = world.store()
    by(store, *["a", "b"] * 50, "quiet", *["c"] * 10)
    store.audit.prune(before=0.0, keep=31)
    assert [left(store, each) for each in ("a", "b", "c", "quiet")] == [10, 10, 10, 1]
    assert store.audit.verify().problem == ""


def test_what_was_thinned_is_dropped_by_its_age_as_everything_is(world: World) -> None:
    store = world.store()
    by(store, "quiet", *["loud"] * 20, "quiet")
    store.audit.prune(before=0.0, keep=10)
    assert store.audit.prune(before=1000.0, keep=10) > 0
    assert store.audit.entries() == []
    by(store, "quiet")
    report = store.audit.verify()
    assert (report.problem, report.entries, report.thinned) == ("", 1, 0)


@pytest.mark.parametrize(
    "done",
    [
        "UPDATE audit SET actor = 'paddock', verb = 'thinned', detail = '{\"entries\":1}' WHERE id = 22",
        "DELETE FROM audit WHERE verb = 'thinned'",
        'UPDATE audit SET detail = \'{"actor":"loud","entries":30}\' WHERE verb = \'thin\'',
    ],
)
def test_thinning_does_not_hide_what_was_taken_out(world: World, done: str) -> None:
    store = world.store()
    by(store, "quiet", *["loud"] * 20, "quiet", "quiet")
    store.audit.prune(before=0.0, keep=10)
    assert store.audit.verify().problem == ""
    with world.database() as database, database.writing() as connection:
        connection.exec_driver_sql(done)
    assert store.audit.verify().problem


def test_two_daemons_cannot_fork_the_chain(world: World) -> None:
    first, second = world.store(), world.store()
    for number in range(1, 11):
        (first if number % 2 else second).audit.append([entry(number)])
    report = first.audit.verify()
    assert (report.problem, report.entries) == ("", 10)
