"""A backup is one moment of a store in use; a restore puts it back whole, or changes nothing."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.app import store as app_store
from controller.app.errors import CannotStart
from controller.loop.store_lineage import StoreLineage
from controller.settings import Settings
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import Backend, insert, make_backend, new_sandbox, refusal


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with make_backend("sqlite", tmp_path) as created:
        yield created


def file_of(backend: Backend) -> Path:
    return Path(backend.url.removeprefix("sqlite:///"))


def saved(store: SqlStore, path: Path) -> Path:
    with store.backup() as copy, path.open("wb") as target:
        shutil.copyfileobj(copy, target)
    return path


def restored(backend: Backend, file: Path) -> str:
    return app_store.restore(Settings(database_url=backend.url, state_dir=file_of(backend).parent), file)


def names(store: SqlStore) -> list[str]:
    return [stored.name for stored in store.list("Sandbox")[0]]


def test_there_and_back(backend: Backend, tmp_path: Path) -> None:
    store = backend.store()
    insert(store, new_sandbox("one"))
    copy = saved(store, tmp_path / "copy")
    insert(store, new_sandbox("two"))
    before = store.instance_id
    store.close()
    output = restored(backend, copy)
    assert "the old store is kept as" in output
    assert output.endswith(f"confirm by removing {file_of(backend).parent}/lineage.json")
    store.open()
    assert (names(store), store.instance_id) == (["one"], before)
    [entry] = store.audit.entries()
    assert (entry.writer, entry.verb, entry.source) == ("offline/host", "restore", "offline")
    assert entry.actor.endswith(f"(uid {os.getuid()})")
    assert store.audit.verify().problem == ""
    aside = next(file_of(backend).parent.glob("*.before-*Z"))
    second = SqlStore(f"sqlite:///{aside}")
    second.open()
    assert names(second) == ["one", "two"]
    second.close()


def test_nothing_is_left_beside_the_store_and_no_lease_goes_along(backend: Backend, tmp_path: Path) -> None:
    store = backend.store()
    insert(store, new_sandbox())
    stored = sorted(path.name for path in file_of(backend).parent.iterdir())
    copy = saved(store, tmp_path / "copy")
    assert sorted(path.name for path in file_of(backend).parent.iterdir()) == stored
    with closing(sqlite3.connect(copy)) as observed:
        assert observed.execute("SELECT count(*) FROM leases").fetchone() == (0,)
        assert observed.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_restore_is_noticed_by_what_is_in_no_backup(backend: Backend, tmp_path: Path) -> None:
    store, file = backend.store(), tmp_path / "lineage.json"
    copy = saved(store, tmp_path / "copy")
    insert(store, new_sandbox())
    lineage = StoreLineage(file, store.instance_id)
    assert lineage.follow(store.revision()) == ""
    lineage.close()
    store.close()
    restored(backend, copy)
    store.open()
    assert "it was restored from a backup" in StoreLineage(file, store.instance_id).follow(store.revision())


def test_not_under_a_daemon(backend: Backend, tmp_path: Path) -> None:
    store = SqlStore(backend.url)
    lease = store.lease()
    assert lease.acquire() == ""
    store.open()
    insert(store, new_sandbox())
    copy = saved(store, tmp_path / "copy")
    with pytest.raises(CannotStart, match="in use by a Paddock daemon"):
        restored(backend, copy)
    assert names(store) == ["box"]
    store.close()
    lease.release()


@pytest.mark.parametrize("spoiled", ["empty", "text", "other", "cut", "newer", "missing"])
def test_what_is_no_backup_changes_nothing(backend: Backend, tmp_path: Path, spoiled: str) -> None:
    store = backend.store()
    insert(store, *(new_sandbox(f"box-{number}", spec={"x": "y" * 3000}) for number in range(50)))
    copy = saved(store, tmp_path / "copy")
    store.close()
    _spoil(copy, spoiled)
    with pytest.raises(CannotStart, match="nothing was restored"):
        restored(backend, copy)
    store.open()
    assert len(names(store)) == 50
    assert not list(file_of(backend).parent.glob("*.before-*"))


FOREIGN = {
    "the trigger `spy`": "CREATE TRIGGER spy AFTER INSERT ON tokens BEGIN DELETE FROM audit; END",
    "the table `more`": "CREATE TABLE more (x)",
    "the view `seen`": "CREATE VIEW seen AS SELECT * FROM tokens",
    "the table `objects` with other columns": "ALTER TABLE objects ADD COLUMN x GENERATED ALWAYS AS (uid) VIRTUAL",
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_backup_with_foreign_contents_is_refused(backend: Backend, tmp_path: Path, foreign: str) -> None:
    store = backend.store()
    insert(store, new_sandbox("kept"))
    copy = saved(store, tmp_path / "copy")
    store.close()
    with closing(sqlite3.connect(copy)) as database:
        database.execute(FOREIGN[foreign])
        database.commit()
    with pytest.raises(CannotStart, match=f"has {foreign}, which no Paddock store has"):
        restored(backend, copy)
    store.open()
    assert names(store) == ["kept"]


def _spoil(copy: Path, how: str) -> None:
    if how == "missing":
        copy.unlink()
    elif how == "cut":
        copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])
    elif how in ("empty", "text"):
        copy.write_text("" if how == "empty" else "no database at all" * 100)
    else:
        if how == "other":
            copy.unlink()
        with closing(sqlite3.connect(copy)) as observed:
            observed.execute(
                "CREATE TABLE theirs (x)" if how == "other" else "UPDATE alembic_version SET version_num = '9'"
            )
            observed.commit()


def test_a_store_that_is_gone_refuses_until_it_is_back(backend: Backend) -> None:
    store, file = backend.store(), file_of(backend)
    insert(store, new_sandbox("one"))
    away = file.with_name("away")
    file.rename(away)
    assert "its file was moved or removed" in str(refusal(lambda: insert(store, new_sandbox("two"))))
    assert "its file was moved or removed" in str(refusal(lambda: store.list("Sandbox")))
    assert "is gone" in store.ping()
    assert not file.exists()  # no empty one was begun in its place
    away.rename(file)
    insert(store, new_sandbox("two"))
    assert names(store) == ["one", "two"]


def test_a_store_that_was_replaced_is_not_written(backend: Backend) -> None:
    store, file = backend.store(), file_of(backend)
    insert(store, new_sandbox("one"))
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.replace(file)
    assert "was replaced by another file" in str(refusal(lambda: insert(store, new_sandbox("two"))))
    assert "restart the daemon" in store.ping()


def test_a_store_that_another_program_locks_refuses_and_recovers(backend: Backend) -> None:
    store = backend.store(wait_seconds=0.2)
    with closing(sqlite3.connect(file_of(backend), isolation_level=None)) as second:
        second.execute("BEGIN EXCLUSIVE")
        assert "is held by another process" in str(refusal(lambda: insert(store, new_sandbox())))
        assert names(store) == []  # who only reads goes on
        second.execute("ROLLBACK")
    insert(store, new_sandbox())
    assert names(store) == ["box"]
