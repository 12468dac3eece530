"""Contract of every store's audit log: with the commit or not at all, a chain a writer, pruned at its one end only."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select, update

from controller.kinds.access.audit import AuditEntry
from controller.ports import StoreError
from controller.store.audit import ChainEnd
from controller.store.schema import audit_chains, audit_entries, meta
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, insert, make_backend, new_sandbox, refusal
from tests.daemon import wait_for
from tests.examples import examples
from tests.statements import traced

WRITERS = ("a", "b", "host")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("append", "append", "transaction", "undone", "prune", "thin")),
        st.sampled_from(WRITERS),
        st.integers(1, 6),
    ),
    max_size=20,
)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Backend]:
    with make_backend("postgres", tmp_path) as created:
        yield created


def entry(number: int) -> AuditEntry:
    return AuditEntry(float(number), f"actor {number}", "here", "create", "Sandbox", "default", f"box-{number}")


def filled(backend: Backend, count: int = 5) -> SqlStore:
    store = backend.store()
    store.audit.append([entry(number) for number in range(1, count + 1)])
    return store


def names(store: SqlStore, **query: float) -> list[str]:
    return [single.name for single in store.audit.entries(**query)]  # type: ignore[arg-type]


def test_entries_are_kept_in_order_and_found_by_time(backend: Backend) -> None:
    store = filled(backend)
    assert names(store) == [f"box-{number}" for number in range(1, 6)]
    assert names(store, since=4.0) == ["box-4", "box-5"]
    assert names(store, limit=2) == ["box-4", "box-5"]
    entries = store.audit.entries()
    assert [single.id for single in entries] == [1, 2, 3, 4, 5]
    report = backend.store().audit.verify()
    assert (report.problem, report.entries) == ("", 5)
    assert (report.newest.last_id, report.newest.last_hash) == (5, entries[-1].hash)


def test_an_empty_log_is_whole(backend: Backend) -> None:
    assert backend.store().audit.verify().problem == ""


def test_an_entry_is_there_if_and_only_if_the_commit_is(backend: Backend) -> None:
    store = backend.store()
    with suppress(ZeroDivisionError), store.transaction() as transaction:
        transaction.put(new_sandbox())
        transaction.audit(entry(1))
        raise ZeroDivisionError
    assert names(store) == []
    with store.transaction() as transaction:
        transaction.put(new_sandbox())
        transaction.audit(entry(2))
    assert names(store) == ["box-2"]
    assert store.audit.verify().problem == ""


def test_stores_continue_one_chain_in_turn(backend: Backend) -> None:
    """Each knows the end as it wrote it itself; what others wrote, or was rolled back, is read."""
    store, second = backend.store(), backend.store()
    for number in range(1, 4):
        store.audit.append([entry(number), entry(number)])
        with suppress(ZeroDivisionError), store.transaction() as transaction:
            transaction.audit(entry(10 + number))
            transaction.flush()
            raise ZeroDivisionError
        store.audit.append([entry(number)])
        second.audit.append([entry(20 + number)])
    assert [single.id for single in second.audit.entries(writer="host")] == list(range(1, 13))
    assert store.audit.verify().problem == second.audit.verify().problem == ""


def test_odd_text_is_kept_and_still_verified(backend: Backend) -> None:
    store = backend.store()
    store.audit.append([AuditEntry(0.1, "a\0b\ud800", "", "use", detail={"é": ["\u2028", 1.5, None]})])
    assert store.audit.verify().problem == ""
    assert store.audit.entries()[0].detail == {"é": ["\u2028", 1.5, None]}


@pytest.mark.parametrize(
    ("done", "said"),
    [
        ("UPDATE audit_entries SET actor = 'nobody' WHERE id = 3", "entry 3 was changed"),
        ("UPDATE audit_entries SET outcome = 'refused' WHERE id = 5", "entry 5 was changed"),
        ("UPDATE audit_entries SET at = 9 WHERE id = 1", "entry 1 was changed"),
        ("UPDATE audit_entries SET detail = '{\"x\":1}' WHERE id = 2", "entry 2 was changed"),
        ("DELETE FROM audit_entries WHERE id = 3", "entry 3 is missing"),
        ("DELETE FROM audit_entries WHERE id = 1", "entry 1 is missing"),
        ("DELETE FROM audit_entries WHERE id > 3", "the log ends at entry 3, and 5 were written"),
        ("DELETE FROM audit_entries", "the log ends at entry 0, and 5 were written"),
        ("DELETE FROM audit_chains", "the end of the chain is missing"),
        ("UPDATE audit_entries SET id = 9 WHERE id = 3", "entry 3 is missing"),
    ],
)
def test_whatever_is_done_to_it_is_noticed(backend: Backend, done: str, said: str) -> None:
    store = filled(backend)
    with backend.database() as database, database.writing() as connection:
        connection.exec_driver_sql(done)
    assert said in store.audit.verify().problem


def test_pruning_leaves_a_chain_that_can_be_verified(backend: Backend) -> None:
    store = filled(backend)
    assert store.audit.prune(before=3.0, keep=1000) == 2
    assert store.audit.prune(before=3.0, keep=1000) == 0
    report = store.audit.verify()
    assert (report.problem, report.entries, report.pruned, report.newest.last_id) == ("", 3, 2, 5)
    assert store.audit.prune(before=0.0, keep=1) == 2
    store.audit.append([entry(6)])
    assert names(store) == ["box-5", "box-6"]
    assert store.audit.verify().problem == ""
    assert store.audit.prune(before=100.0, keep=0) == 2
    assert store.audit.verify().problem == ""
    store.audit.append([entry(7)])
    assert [single.id for single in store.audit.entries()] == [7]
    assert store.audit.verify().problem == ""


def test_pruning_does_not_hide_what_was_taken_out(backend: Backend) -> None:
    store = filled(backend)
    store.audit.prune(before=3.0, keep=1000)
    with backend.database() as database, database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM audit_entries WHERE id = 3")
    assert "entry 3 is missing" in store.audit.verify().problem


def by(store: SqlStore, *actors: str) -> None:
    start = len(store.audit.entries(limit=10_000))
    entries = [entry(number) for number in range(start + 1, start + 1 + len(actors))]
    store.audit.append([replace(single, actor=actor) for single, actor in zip(entries, actors, strict=True)])


def left(store: SqlStore, actor: str) -> int:
    return sum(single.actor == actor for single in store.audit.entries())


def test_one_caller_s_entries_do_not_push_out_another_s(backend: Backend) -> None:
    store = backend.store()
    by(store, "quiet", *["loud"] * 20, "quiet", *["loud"] * 1500, "other", *["loud"] * 30, "quiet")
    before = {single.id: single.hash for single in store.audit.entries(limit=10_000)}
    assert store.audit.prune(before=0.0, keep=50) == 1550 - 46
    assert (left(store, "quiet"), left(store, "other"), left(store, "loud")) == (3, 1, 46)
    entries = [single for single in store.audit.entries() if single.actor in ("quiet", "other", "loud")]
    assert all(before[single.id] == single.hash for single in entries)
    newest = [single.id for single in entries if single.actor == "loud"]
    assert newest == [number for number in sorted(before) if number in newest][-46:], "the oldest of theirs are gone"
    report = store.audit.verify()
    assert (report.problem, report.entries - 50 > 0, report.thinned) == ("", True, 1550 - 46)
    assert store.audit.prune(before=0.0, keep=50) == 0, "there is nothing more to drop"
    by(store, "later")
    assert backend.store().audit.verify().problem == ""


def test_several_loud_callers_share_what_the_quiet_ones_leave(backend: Backend) -> None:
    store = backend.store()
    by(store, *["a", "b"] * 50, "quiet", *["c"] * 10)
    store.audit.prune(before=0.0, keep=31)
    assert [left(store, single) for single in ("a", "b", "c", "quiet")] == [10, 10, 10, 1]
    assert store.audit.verify().problem == ""


def test_what_was_thinned_is_dropped_by_its_age_as_everything_is(backend: Backend) -> None:
    store = backend.store()
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
        "UPDATE audit_entries SET actor = 'paddock', verb = 'thinned', detail = '{\"entries\":1}' WHERE id = 22",
        "DELETE FROM audit_entries WHERE verb = 'thinned'",
        'UPDATE audit_entries SET detail = \'{"actor":"loud","entries":30}\' WHERE verb = \'thin\'',
    ],
)
def test_thinning_does_not_hide_what_was_taken_out(backend: Backend, done: str) -> None:
    store = backend.store()
    by(store, "quiet", *["loud"] * 20, "quiet", "quiet")
    store.audit.prune(before=0.0, keep=10)
    assert store.audit.verify().problem == ""
    with backend.database() as database, database.writing() as connection:
        connection.exec_driver_sql(done)
    assert store.audit.verify().problem


def test_two_daemons_cannot_fork_the_chain(backend: Backend) -> None:
    first, second = backend.store(), backend.store()
    for number in range(1, 11):
        (first if number % 2 else second).audit.append([entry(number)])
    report = first.audit.verify()
    assert (report.problem, report.entries) == ("", 10)


def of_three(backend: Backend) -> dict[str, SqlStore]:
    """Three writers, who take turns with five entries each."""
    stores = {writer: backend.store(writer=writer) for writer in WRITERS}
    for number in range(1, 16):
        stores[WRITERS[number % 3]].audit.append([entry(number)])
    return stores


def report(store: SqlStore) -> dict[str, tuple[int, int, int, str]]:
    return {
        chain.writer: (chain.entries, chain.pruned, chain.last_id, chain.problem)
        for chain in store.audit.verify().chains
    }


def test_each_writer_has_a_chain_of_its_own(backend: Backend) -> None:
    store = of_three(backend)["b"]
    assert report(store) == dict.fromkeys(WRITERS, (5, 0, 5, ""))
    assert names(store) == [f"box-{number}" for number in range(1, 16)], "they are merged by their times"
    assert names(store, limit=2) == ["box-14", "box-15"]
    of_b = store.audit.entries(writer="b", limit=3)
    assert [(single.writer, single.id) for single in of_b] == [("b", 3), ("b", 4), ("b", 5)]
    assert store.audit.verify().newest.writer == "a"


def test_a_writer_s_own_order_is_kept_after_a_clock_jump(backend: Backend) -> None:
    store = backend.store()
    store.audit.append([entry(number) for number in (5, 6, 1, 2)])
    assert [single.id for single in store.audit.entries(writer="host")] == [1, 2, 3, 4]
    assert [single.id for single in store.audit.entries()] == [3, 4, 1, 2]
    assert store.audit.verify().problem == ""


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (update(audit_entries).where(audit_entries.c.id == 3).values(actor="nobody"), "entry 3 was changed"),
        (delete(audit_entries).where(audit_entries.c.id == 2), "entry 2 is missing"),
        (delete(audit_entries).where(audit_entries.c.id > 4), "the log ends at entry 4, and 5 were written"),
        (delete(audit_entries), "the log ends at entry 0, and 5 were written"),
        (delete(audit_chains), "the end of the chain is missing"),
    ],
)
def test_the_chain_that_is_broken_is_named(backend: Backend, done: Any, said: str) -> None:
    store = of_three(backend)["a"]
    with backend.database() as database, database.writing() as connection:
        connection.execute(done.where(done.table.c.writer == "b"))
    assert said in report(store)["b"][3]
    assert [report(store)[single] for single in ("a", "host")] == [(5, 0, 5, "")] * 2
    assert store.audit.verify().problem.startswith("chain of b: ")


def test_a_chain_is_nobody_else_s(backend: Backend) -> None:
    """The hashes cover the writer."""
    store = of_three(backend)["a"]
    with backend.database() as database, database.writing() as connection:
        for table in (audit_entries, audit_chains):
            connection.execute(update(table).where(table.c.writer == "b").values(writer="c"))
    assert store.audit.verify().problem == "chain of c: entry 1 was changed, or an entry before it was removed"


def test_three_processes_append_without_gaps(backend: Backend) -> None:
    """Two of them as one writer, which never is so: not even then is there a fork."""
    children = [backend.child("append", writer, 10) for writer in ("a", "b", "b")]
    assert [child.says() for child in children] == ["ready"] * 3
    for one_child in children:
        one_child.go()
    assert [child.says() for child in children] == ["done"] * 3
    store = backend.store()
    assert report(store) == {"a": (20, 0, 20, ""), "b": (40, 0, 40, "")}
    assert [single.id for single in store.audit.entries(writer="b")] == list(range(1, 41))


def test_pruning_is_by_time_in_every_chain(backend: Backend) -> None:
    stores = of_three(backend)
    assert stores["a"].audit.prune(before=7.0, keep=1000) == 6
    assert report(stores["b"]) == dict.fromkeys(WRITERS, (3, 2, 5, ""))
    for store in stores.values():
        store.audit.append([entry(16)])
    assert report(stores["b"]) == dict.fromkeys(WRITERS, (4, 2, 6, ""))
    assert stores["host"].audit.prune(before=100.0, keep=1000) == 12
    assert report(stores["b"]) == dict.fromkeys(WRITERS, (0, 6, 6, ""))
    assert stores["a"].audit.prune(before=100.0, keep=0) == 0


def test_more_callers_than_entries_to_keep(backend: Backend) -> None:
    stores = of_three(backend)
    assert stores["a"].audit.prune(before=0.0, keep=7) == 9
    assert report(stores["b"]) == dict.fromkeys(WRITERS, (2, 3, 5, ""))


def test_each_chain_keeps_the_number_of_its_dropped_entries(backend: Backend) -> None:
    """They are dropped by one daemon, while the others go on with their chains."""
    leader, second = backend.store(writer="a"), backend.store(writer="b")
    by(leader, "quiet", *["loud"] * 20, "quiet")
    by(second, "quiet", *["loud"] * 40, "other")
    assert leader.audit.prune(before=0.0, keep=24) == 60 - 20
    for store in (second, leader):
        by(store, "later")
    log = leader.audit.verify()
    assert log.problem == ""
    entries = leader.audit.entries()
    assert Counter((single.writer, single.actor) for single in entries if single.actor != "paddock") == {
        ("a", "quiet"): 2,
        ("a", "loud"): 10,
        ("a", "later"): 1,
        ("b", "quiet"): 1,
        ("b", "other"): 1,
        ("b", "loud"): 10,
        ("b", "later"): 1,
    }
    dropped = {single.writer: single.detail["entries"] for single in entries if single.verb == "thin"}
    assert dropped == {"a": 10, "b": 30} == {chain.writer: chain.thinned for chain in log.chains}
    assert leader.audit.prune(before=0.0, keep=27) == 0


@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_whatever_writers_do_every_chain_holds(steps: list[tuple[str, str, int]], tmp_path_factory: Any) -> None:
    with make_backend("sqlite", tmp_path_factory.mktemp("chains")) as backend:
        stores = {writer: backend.store(writer=writer) for writer in WRITERS}
        for at, (what, writer, number) in enumerate(steps, 1):
            store = stores[writer]
            entries = [replace(entry(at), actor="loud" if index % 3 else "quiet") for index in range(number)]
            if what == "append":
                store.audit.append(entries)
            elif what == "prune":
                store.audit.prune(before=at - 4.0, keep=1000)
            elif what == "thin":
                store.audit.prune(before=0.0, keep=4 + number)
            else:
                with suppress(ZeroDivisionError), store.transaction() as transaction:
                    for single in entries:
                        transaction.audit(single)
                    if what == "undone":
                        transaction.flush()
                        raise ZeroDivisionError
            log = store.audit.verify()
            assert log.problem == ""
            assert len(store.audit.entries()) >= log.entries
            assert log.entries == sum(chain.entries for chain in log.chains)


def test_appending_is_two_statements(tmp_path: Path) -> None:
    """Whatever was written before, and in a transaction as by itself."""
    with traced() as ran, make_backend("sqlite", tmp_path) as backend:
        store = backend.store()
        store.audit.append([entry(1)])
        ran.clear()
        store.audit.append([entry(2)])
        assert verbs(ran) == ["BEGIN IMMEDIATE", "UPDATE audit_chains", "INSERT INTO", "COMMIT"]
        ran.clear()
        with store.transaction() as transaction:
            transaction.audit(entry(3))
        assert verbs(ran) == ["BEGIN IMMEDIATE", "UPDATE audit_chains", "INSERT INTO", "COMMIT"]


@pytest.mark.postgres
def test_a_server_is_asked_for_the_lease_besides(postgres: Backend) -> None:
    with traced() as ran:
        store = postgres.store()
        lease = store.lease(seconds=60.0)
        assert lease.acquire() == ""
        store.audit.append([entry(1)])
        ran.clear()
        store.audit.append([entry(2)])
        assert verbs(ran) == ["UPDATE audit_chains", "INSERT INTO", "SELECT leases.holder,"]
        lease.release()


def verbs(statements: list[str]) -> list[str]:
    return [" ".join(statement.split()[:2]) for statement in statements]


@pytest.mark.postgres
def test_appending_does_not_wait_for_the_counter_row(postgres: Backend) -> None:
    """So that the commands of one host don't wait for another's writes. A change and its entry do."""
    store = postgres.store(writer="b", wait_seconds=0.2)
    lease = store.lease("host/b", seconds=60.0)
    assert lease.acquire() == ""
    insert(store, new_sandbox("one"))
    with postgres.database() as database, database.writing() as writing:
        writing.execute(select(meta).with_for_update())
        store.audit.append([entry(1)])
        assert names(store) == ["box-1"]
        assert "is held by another process" in str(refusal(lambda: insert(store, new_sandbox("two"))))
    lease.release()


@pytest.mark.postgres
def test_appending_waits_for_its_own_chain_alone(postgres: Backend) -> None:
    first, second = postgres.store(writer="a", wait_seconds=0.2), postgres.store(writer="b", wait_seconds=0.2)
    for store in (first, second):
        store.audit.append([entry(1)])
    with postgres.database() as database, database.writing() as holder:
        holder.execute(select(audit_chains).where(audit_chains.c.writer == "a").with_for_update())
        assert "is held by another process" in str(refusal(lambda: first.audit.append([entry(2)])))
        second.audit.append([entry(2)])
    first.audit.append([entry(3)])
    assert report(first) == {"a": (2, 0, 2, ""), "b": (2, 0, 2, "")}


def test_a_crowd_is_written_in_few_transactions() -> None:
    """Of threads that wait for their turn, the next one writes for all; who waits too long is not written at all."""
    chain, transactions, may_end = ChainEnd("a"), list[list[int]](), Event()

    def write(entries: Sequence[AuditEntry]) -> None:
        transactions.append([entry.id for entry in entries])
        if len(transactions) == 1:
            assert may_end.wait(30)
        if any(entry.id == 13 for entry in entries):
            raise ValueError("an entry that can't be written")

    def append(number: int) -> None:
        chain.append_in_turn([replace(entry(1), id=number)], 30, write)

    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(append, 1)
        wait_for("the first writes", lambda: bool(transactions))
        late = refusal(lambda: chain.append_in_turn([replace(entry(1), id=99)], 0, write))
        assert "busy with earlier entries" in str(late)
        crowd = {number: pool.submit(append, number) for number in range(2, 15)}
        wait_for("all wait", lambda: len(chain._waiting) == len(crowd))
        may_end.set()
        assert first.exception() is None
        assert [number for number, future in crowd.items() if future.exception() is not None] == [13]
    # The second transaction had an entry that can't be written: each of its threads got one of its own.
    assert [len(numbers) for numbers in transactions] == [1, 13, *[1] * 13]
    chain.append_in_turn([replace(entry(1), id=100)], 0, write)
    assert transactions[-1] == [100]


def test_a_failed_store_is_told_to_all_who_wait(backend: Backend) -> None:
    store, may_end = backend.store(writer="a"), Event()

    def fail(_: Sequence[AuditEntry]) -> None:
        assert may_end.wait(30)
        raise StoreError("the disk is full")

    chain = ChainEnd("a")
    with ThreadPoolExecutor(4) as pool:
        crowd = [pool.submit(chain.append_in_turn, [entry(number)], 30, fail) for number in range(4)]
        wait_for("all wait", lambda: len(chain._waiting) == 3)
        may_end.set()
        assert ["the disk is full" in str(future.exception()) for future in crowd] == [True] * 4
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda number: store.audit.append([entry(number)]), range(60)))
    assert report(store) == {"a": (60, 0, 60, "")}


def test_bad_content_refuses_its_own_entries_alone(backend: Backend) -> None:
    store = backend.store(writer="a", wait_seconds=60)
    store.audit.append([entry(1)])
    entries = [entry(2), entry(3), replace(entry(4), detail={"share": math.nan}), entry(5)]
    with ThreadPoolExecutor(4) as pool:
        with backend.database() as database, database.writing() as holder:
            holder.execute(select(audit_chains).with_for_update())
            crowd = [pool.submit(store.audit.append, [single]) for single in entries]
            assert "not plain JSON" in str(crowd[2].exception(30))
            wait_for("the others wait", lambda: len(store._chain._waiting) == 2)
        assert [number for number, future in enumerate(crowd) if future.exception() is not None] == [2]
    assert report(store) == {"a": (4, 0, 4, "")}


def test_who_is_written_waits_for_no_later_transaction() -> None:
    chain, transactions, may_end = ChainEnd("a"), list[int](), [Event() for _ in range(3)]

    def write(entries: Sequence[AuditEntry]) -> None:
        transactions.append(len(entries))
        assert may_end[len(transactions) - 1].wait(30)

    def crowd(count: int) -> list[Future[None]]:
        return [pool.submit(chain.append_in_turn, [entry(number)], 60, write) for number in range(count)]

    with ThreadPoolExecutor(20) as pool:
        first = crowd(1)
        wait_for("the first writes", lambda: transactions == [1])
        second = crowd(8)
        wait_for("eight wait", lambda: len(chain._waiting) == 8)
        may_end[0].set()
        wait_for("eight are being written", lambda: transactions == [1, 8])
        third = crowd(8)
        wait_for("eight more wait", lambda: len(chain._waiting) == 8)
        may_end[1].set()
        wait_for("those are being written", lambda: transactions == [1, 8, 8])
        wait_for("all before know it", lambda: all(future.done() for future in first + second))
        assert not any(future.done() for future in third)
        may_end[2].set()
    assert [future.exception() for future in first + second + third] == [None] * 17


@pytest.mark.postgres
def test_no_store_writes_entries_by_another_lease(postgres: Backend) -> None:
    store = postgres.store(writer="b", wait_seconds=60)
    store.audit.append([entry(1)])
    fleet = store.writing_as(store.lease("fleet"))  # nobody holds it
    own = store.lease("host/b", seconds=600)
    assert own.acquire() == ""
    with ThreadPoolExecutor(3) as pool:
        with postgres.database() as database, database.writing() as holder:
            holder.execute(select(audit_chains).with_for_update())
            refused = [pool.submit(fleet.audit.append, [entry(9)]) for _ in range(2)]
            wait_for("one waits for the other", lambda: len(fleet._chain._waiting) == 1)
            ours = pool.submit(store.audit.append, [entry(2)])
            wait_for("all have begun", ours.running)
        assert ours.exception() is None
        assert all("the lease fleet" in str(future.exception()) for future in refused)
    assert names(store) == ["box-1", "box-2"]
    assert store.audit.verify().problem == ""
    own.release()


@pytest.mark.postgres
def test_a_late_holder_appends_nothing(postgres: Backend) -> None:
    """Its lease was taken while it waited for its chain."""
    first, second = postgres.store(writer="b"), postgres.store(writer="b")
    first.audit.append([entry(1)])
    old, new = first.lease("host/b", seconds=0.001), second.lease("host/b", seconds=60.0)
    assert old.acquire() == ""
    with ThreadPoolExecutor(1) as pool:
        with postgres.database() as database, database.writing() as holder:
            holder.execute(select(audit_chains).with_for_update())
            late = pool.submit(refusal, lambda: first.audit.append([entry(2)]))
            wait_for("it waits", lambda: waiting(postgres))
            wait_for("it is taken over", lambda: not new.acquire())
        assert "the lease host/b is held by" in str(late.result())
    second.audit.append([entry(3)])
    assert names(second) == ["box-1", "box-3"]
    assert second.audit.verify().problem == ""
    for store_lease in (old, new):
        store_lease.release()


def waiting(backend: Backend) -> bool:
    """Return True if a connection waits for a chain."""
    text = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position('audit_chains' IN query) > 0"
    )
    with backend.database() as database, database.reading() as connection:
        return bool(connection.exec_driver_sql(text).scalar_one())
