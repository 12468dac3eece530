"""The audit log while hosts are upgraded one after the other: daemons of schema 0010 and newer ones use one store.

The older ones have one chain for all, which is that of writer "" for newer ones.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from controller.kinds.access.audit import AuditEntry
from controller.store import migrate
from controller.store.schema import audit
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, make_backend, new_sandbox
from tests.store.upgrade import audit_0010


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


def entry(number: int, actor: str = "ann") -> AuditEntry:
    return AuditEntry(float(number), actor, "here", "create", "Sandbox", "default", f"box-{number}")


def older(store: SqlStore) -> audit_0010.SqlAudit:
    """The audit log of an older daemon, over the transactions of a store of its own."""
    return audit_0010.SqlAudit(store._reading, store._changing, audit_0010.ChainEnd())


def names(log: audit_0010.SqlAudit | SqlStore) -> list[str]:
    entries = log.audit.entries(limit=5000) if isinstance(log, SqlStore) else log.entries(limit=5000)
    return [single.name for single in entries]


def test_old_and_new_daemons_append_in_turn(backend: Backend) -> None:
    old, second, new = older(backend.store()), older(backend.store()), backend.store(writer="b")
    for number in range(1, 31, 3):
        old.append([entry(number)])
        new.audit.append([entry(number + 1)])
        second.append([entry(number + 2)])
    assert old.verify() == second.verify()
    assert (old.verify().problem, old.verify().entries) == ("", 20)
    log = new.audit.verify()
    assert log.problem == ""
    assert [(chain.writer, chain.entries, chain.last_id) for chain in log.chains] == [("", 20, 20), ("b", 10, 10)]
    assert names(new) == [f"box-{number}" for number in range(1, 31)]
    assert names(old) == [f"box-{number}" for number in range(1, 31) if number % 3 != 2]
    assert [single.id for single in new.audit.entries(writer="", limit=2)] == [19, 20]


def test_old_and_new_daemons_append_at_once(backend: Backend) -> None:
    stores = [backend.store(wait_seconds=30) for _ in range(4)]
    logs: list[Any] = [older(stores[0]), older(stores[1]), *(store.audit for store in stores[2:])]

    def work(at: int) -> None:
        for number in range(15):
            logs[at].append([entry(number)])
            with stores[at].transaction() as transaction:
                transaction.put(new_sandbox(f"{at}-{number}"))
                transaction.audit(entry(number))

    with ThreadPoolExecutor(len(logs)) as pool:
        list(pool.map(work, range(len(logs))))
    log = stores[0].audit.verify()
    assert log.problem == older(stores[0]).verify().problem == ""
    assert {chain.writer: chain.entries for chain in log.chains} == {"": 30, "host": 90}


def filled(backend: Backend) -> tuple[audit_0010.SqlAudit, SqlStore]:
    """Callers with few and with many entries, with an older and with a newer daemon."""
    old, new = older(backend.store()), backend.store(writer="b")
    for at in range(1, 61, 2):
        actor = "quiet" if at % 20 == 1 else "loud"
        old.append([entry(at, actor)])
        new.audit.append([entry(at + 1, actor)])
    return old, new


def test_an_old_daemon_prunes_what_it_knows(backend: Backend) -> None:
    """While it has the lease `fleet`. The other chains are pruned once it is upgraded."""
    old, new = filled(backend)
    assert old.prune(before=11.0, keep=1000) == 5
    assert old.prune(before=0.0, keep=12) == 25 - 12
    assert old.verify().problem == new.audit.verify().problem == ""
    assert {chain.writer: (chain.entries, chain.pruned) for chain in new.audit.verify().chains}["b"] == (30, 0)
    new.audit.append([entry(61)])
    old.append([entry(62)])
    assert names(new)[-2:] == ["box-61", "box-62"]
    assert old.verify().problem == new.audit.verify().problem == ""


def test_a_new_daemon_prunes_for_old_ones(backend: Backend) -> None:
    old, new = filled(backend)
    assert new.audit.prune(before=11.0, keep=1000) == 10
    assert new.audit.prune(before=0.0, keep=24) == 50 - 24
    for number in range(61, 71):
        old.append([entry(number)])
        new.audit.append([entry(number)])
    assert (old.verify().problem, old.verify().pruned) == ("", 10)
    assert names(old)[-10:] == [f"box-{number}" for number in range(61, 71)]
    log = new.audit.verify()
    assert log.problem == ""
    assert {chain.writer: (chain.pruned, chain.thinned > 0) for chain in log.chains} == {
        "": (10, True),
        "b": (10, True),
    }
    new.audit.prune(before=1000.0, keep=1000)
    assert names(old) == names(new) == []
    assert old.verify().problem == new.audit.verify().problem == ""


def test_a_change_to_the_old_chain_is_found(backend: Backend) -> None:
    old, new = filled(backend)
    with backend.database() as database, database.writing() as connection:
        connection.execute(update(audit).where(audit.c.id == 7).values(actor="nobody"))
    output = "entry 7 was changed, or an entry before it was removed"
    assert old.verify().problem == output
    assert new.audit.verify().problem == f"chain of older versions: {output}"


def test_the_entries_of_before_are_kept(backend: Backend, tmp_path: Path) -> None:
    """A store of schema 0010 is migrated; its backup is restored into a newer one."""
    store = backend.store()
    older(store).append([entry(1), entry(2)])
    with backend.database() as database, database.migrating() as connection:
        migrate.downgrade(connection, "0010")
    store.open()
    store.audit.append([entry(3)])
    assert names(store) == ["box-1", "box-2", "box-3"]
    assert [(chain.writer, chain.entries) for chain in store.audit.verify().chains] == [("", 2), ("host", 1)]
    copy = tmp_path / "copy"
    with store.backup() as backup:
        copy.write_bytes(backup.read())
    store.audit.append([entry(4)])
    older(store).append([entry(5)])
    store.close()
    store.restore(copy, stamp="now")
    store.open()
    store.audit.append([entry(6)])
    older(store).append([entry(7)])
    assert names(store) == ["box-1", "box-2", "box-3", "box-6", "box-7"]
    assert store.audit.verify().problem == ""


def test_an_old_daemon_s_store_goes_on_after_a_rollback(backend: Backend) -> None:
    """The version before runs again on the migrated store, and the newer one later."""
    old, new = filled(backend)
    before = new.audit.entries(limit=1000)
    for number in range(61, 64):
        old.append([entry(number)])
    assert old.verify().problem == ""
    again = backend.store(writer="b")
    again.audit.append([entry(64)])
    assert names(again)[-4:] == [f"box-{number}" for number in range(61, 65)]
    assert list(again.audit.entries(limit=1000))[: len(before)] == list(before)
    assert again.audit.verify().problem == ""
