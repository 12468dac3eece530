"""A backup is one moment of a store in use, on both databases, and each of them takes the other's."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.kinds.access.access import Grant, Token
from controller.kinds.access.audit import AuditEntry
from controller.ports import StoreError
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, event, insert, instance, make_backend, new_sandbox, refusal

ENTRY = AuditEntry(5.0, "ann", "unix", "create", "Sandbox", "default", "one")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


def saved(store: SqlStore, path: Path) -> Path:
    with store.backup() as copy, path.open("wb") as target:
        shutil.copyfileobj(copy, target)
    return path


@contextmanager
def as_sqlite(file: Path) -> Iterator[SqlStore]:
    """A backup, opened as a store of its own."""
    store = SqlStore(f"sqlite:///{file}")
    store.open()
    try:
        yield store
    finally:
        store.close()


def furnish(store: SqlStore) -> None:
    """Some of everything."""
    (stored,) = insert(store, new_sandbox("one", labels={"app": "ümlaut"}, spec={"text": "\u2028 \"'\\", "n": 2**53}))
    with store.transaction() as transaction:
        transaction.put_instance(instance(stored))
        for number in range(3):
            transaction.add_event(event(stored, f"made {number}"))
    store.tokens.add(Token("aa", "ci", "digest", Grant(role="user"), 1.0, "ann", expires_at=9.5), ENTRY)


def everything(store: SqlStore) -> object:
    return (
        store.instance_id,
        store.list("Sandbox"),
        list(store.instances()),
        list(store.events()),
        list(store.changes(0)),
        list(store.tokens.all()),
        store.audit.verify(),
    )


def names(store: SqlStore) -> list[str]:
    return [stored.name for stored in store.list("Sandbox")[0]]


def test_all_of_it_is_there_and_back(backend: Backend, tmp_path: Path) -> None:
    store, second = backend.store(), backend.store(writer="b")
    furnish(store)
    second.audit.append([ENTRY, ENTRY])
    before, copy = everything(store), saved(store, tmp_path / "copy")
    insert(store, new_sandbox("two"))
    second.audit.append([ENTRY])
    for entry in (store, second):
        entry.close()
    restore = store.restore(copy, stamp="now")
    assert "the old store is kept as" in restore
    store.open()
    assert everything(store) == before
    with store.transaction() as transaction:
        transaction.add_event(event(store.list("Sandbox")[0][0], "after"))
    insert(store, new_sandbox("three"))
    second.open()
    for one_store in (store, second):
        one_store.audit.append([ENTRY])
    log = store.audit.verify()
    assert log.problem == ""
    assert [(chain.writer, chain.last_id) for chain in log.chains] == [("b", 3), ("host", 2)], "both chains go on"
    assert names(store) == ["one", "three"]
    path = Path(restore.rsplit(" ", 1)[1])
    with as_sqlite(path) as old:
        assert names(old) == ["one", "two"]


def test_either_takes_the_others(backend: Backend, tmp_path: Path) -> None:
    first = backend.store()
    furnish(first)
    before, copy = everything(first), saved(first, tmp_path / "copy")
    with as_sqlite(copy) as sqlite:
        assert everything(sqlite) == before
        insert(sqlite, new_sandbox("two"))
        back = saved(sqlite, tmp_path / "back")
        grown = everything(sqlite)
    first.close()
    first.restore(back, stamp="now")
    first.open()
    assert everything(first) == grown


def test_amid_writes_it_is_of_one_moment(backend: Backend, tmp_path: Path) -> None:
    store, stop = backend.store(), threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            insert(store, new_sandbox(f"a{number}"), new_sandbox(f"b{number}"))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copies = [saved(store, tmp_path / f"copy{number}") for number in range(5)]
    finally:
        stop.set()
        writer.join()
    for copy in copies:
        with as_sqlite(copy) as sqlite:
            objects, revision = sqlite.list("Sandbox")
            assert len(objects) == revision
            assert len(objects) % 2 == 0


def test_what_is_no_backup_changes_nothing(backend: Backend, tmp_path: Path) -> None:
    store, bad = backend.store(), tmp_path / "bad"
    insert(store, new_sandbox("one"))
    bad.write_text("no database at all")
    assert "`paddock backup`" in str(refusal(lambda: store.restore(bad, stamp="now")))
    assert names(store) == ["one"]
    assert [path.name for path in tmp_path.glob("bad*")] == ["bad"]


@pytest.mark.postgres
def test_a_restore_that_breaks_off_changes_nothing(tmp_path: Path) -> None:
    """The server refuses a row: all that was put there before it is undone."""
    with make_backend("postgres", tmp_path, new=True) as backend:
        store = backend.store()
        furnish(store)
        copy = saved(store, tmp_path / "copy")
        before = everything(store)
        with backend.database() as database, database.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE audit_entries ADD CHECK (actor <> 'ann') NOT VALID")
        with pytest.raises(StoreError):
            store.restore(copy, stamp="now")
        assert everything(store) == before


@pytest.mark.postgres
def test_a_store_that_other_daemons_use_is_not_restored(tmp_path: Path) -> None:
    with make_backend("postgres", tmp_path, new=True) as backend:
        store, second = backend.store(), backend.store()
        furnish(store)
        copy = saved(store, tmp_path / "copy")
        lease = second.lease("host/b")
        assert lease.acquire() == ""
        insert(second, new_sandbox("two"))
        store.close()
        assert "host/b: pid" in str(refusal(lambda: store.restore(copy, stamp="now")))
        assert names(second) == ["one", "two"]
        lease.release()
        store.restore(copy, stamp="now")
        store.open()
        assert names(store) == ["one"]
