"""The audit log of versions before schema 0011 after an upgrade: its entries stay, verify, and are pruned.

They had one chain for all daemons, which is that of writer "". Nothing else is added to it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from controller.kinds.access.audit import AuditEntry
from controller.store import migrate
from controller.store.schema import audit
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, make_backend
from tests.store.older_audit import append_older


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


def entry(number: int, actor: str = "ann") -> AuditEntry:
    return AuditEntry(float(number), actor, "here", "create", "Sandbox", "default", f"box-{number}")


def names(store: SqlStore, writer: str | None = None) -> list[str]:
    return [single.name for single in store.audit.entries(limit=5000, writer=writer)]


def filled(backend: Backend) -> SqlStore:
    """Thirty entries in the older chain, and thirty in one of today, of callers with few and with many."""
    store = backend.store(writer="b")
    for at in range(1, 61, 2):
        actor = "quiet" if at % 20 == 1 else "loud"
        append_older(store, [entry(at, actor)])
        store.audit.append([entry(at + 1, actor)])
    return store


def test_older_and_newer_entries_are_one_log(backend: Backend) -> None:
    store = filled(backend)
    log = store.audit.verify()
    assert log.problem == ""
    assert [(chain.writer, chain.entries, chain.last_id) for chain in log.chains] == [("", 30, 30), ("b", 30, 30)]
    assert names(store) == [f"box-{number}" for number in range(1, 61)]
    assert names(store, "") == [f"box-{number}" for number in range(1, 61, 2)]
    assert [single.id for single in store.audit.entries(writer="", limit=2)] == [29, 30]


def test_the_older_chain_is_pruned_with_others(backend: Backend) -> None:
    store = filled(backend)
    assert store.audit.prune(before=11.0, keep=1000) == 10
    assert store.audit.prune(before=0.0, keep=24) == 50 - 24
    log = store.audit.verify()
    assert log.problem == ""
    assert {chain.writer: chain.thinned > 0 for chain in log.chains} == {"": True, "b": True}
    store.audit.prune(before=1000.0, keep=1000)
    assert names(store) == []
    assert store.audit.verify().problem == ""


def test_a_change_to_the_old_chain_is_found(backend: Backend) -> None:
    store = filled(backend)
    with backend.database() as database, database.writing() as connection:
        connection.execute(update(audit).where(audit.c.id == 7).values(actor="nobody"))
    assert store.audit.verify().problem == (
        "chain of older versions: entry 7 was changed, or an entry before it was removed"
    )


def test_the_entries_of_before_are_kept(backend: Backend, tmp_path: Path) -> None:
    """A store of schema 0010 is migrated; its backup is restored into a newer one."""
    store = backend.store()
    append_older(store, [entry(1), entry(2)])
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
    store.close()
    store.restore(copy, stamp="now")
    store.open()
    store.audit.append([entry(6)])
    assert names(store) == ["box-1", "box-2", "box-3", "box-6"]
    assert store.audit.verify().problem == ""
