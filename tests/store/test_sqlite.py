"""Failures that only SQLite has: files, folders, modes, disks."""

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from controller.store.connect import connect
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import Backend, insert, make_backend, new_sandbox, refusal

NOBODY = 65534


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with make_backend("sqlite", tmp_path, new=True) as created:
        yield created


def file_of(backend: Backend) -> Path:
    return Path(backend.url.removeprefix("sqlite:///"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, as pytest's own are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_sqlite_that_is_too_old_is_named(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert "install 3.35 or newer" in str(refusal(SqlStore(backend.url).open))


def test_constructing_does_no_work(backend: Backend) -> None:
    SqlStore(backend.url)
    SqlStore("nonsense")
    assert not file_of(backend).parent.exists()


def test_files_are_for_our_user_alone(backend: Backend) -> None:
    before = os.umask(0)
    try:
        insert(backend.store(), new_sandbox())
    finally:
        os.umask(before)
    folder = file_of(backend).parent
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == dict.fromkeys(
        ("paddock.db", "paddock.db-shm", "paddock.db-wal", "paddock.db.lock"), 0o600
    )


def test_a_folder_that_was_there_keeps_its_mode(backend: Backend) -> None:
    folder = file_of(backend).parent
    folder.mkdir(mode=0o750)
    backend.store()
    assert mode(folder) == 0o750


def test_connections_are_set_up(backend: Backend) -> None:
    backend.store()
    with backend.database() as database, database.reading() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        scalar_ones = [connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one() for pragma in pragmas]
    assert scalar_ones == ["wal", 1, 1, 5000]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true", "sqlite+pysqlite://"])
def test_a_store_needs_a_file(url: str) -> None:
    assert "needs a file" in str(refusal(lambda: connect(url)))


@pytest.mark.parametrize("url", ["", "paddock.db", "/var/lib/paddock.db", "mysql://x/y", "redis://x"])
def test_other_urls_are_refused_with_those_that_work(url: str) -> None:
    assert "sqlite:////path/to/file" in str(refusal(SqlStore(url).open))


def test_a_folder_in_its_place(backend: Backend) -> None:
    file_of(backend).mkdir(parents=True)
    error = str(refusal(backend.store))
    assert "is a folder; name a file in it, such as" in error
    assert list(file_of(backend).iterdir()) == []


def test_a_file_in_its_folders_place(backend: Backend) -> None:
    file_of(backend).parent.write_text("mine")
    assert "check that its folder exists" in str(refusal(backend.store))
    assert file_of(backend).parent.read_text() == "mine"


def test_a_file_that_is_no_database(backend: Backend) -> None:
    file_of(backend).parent.mkdir()
    file_of(backend).write_bytes(b"my dear diary, " * 1000)
    assert "not a paddock database" in str(refusal(backend.store))
    assert file_of(backend).read_bytes() == b"my dear diary, " * 1000


def test_a_damaged_database(backend: Backend) -> None:
    store = backend.store()
    insert(store, *(new_sandbox(f"b{number}", spec={"x": "y" * 500}) for number in range(200)))
    store.close()
    size = file_of(backend).stat().st_size
    with file_of(backend).open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    error = str(refusal(lambda: (store.open(), store.list("Sandbox"))))
    assert "damaged" in error
    assert "restore a backup" in error


def test_a_damaged_value(backend: Backend) -> None:
    store = backend.store()
    insert(store, new_sandbox())
    with contextlib.closing(sqlite3.connect(file_of(backend))) as raw, raw:
        raw.execute("UPDATE objects SET spec = '{'")
    assert "damaged value" in str(refusal(lambda: store.get("Sandbox", "default", "box")))


@pytest.mark.parametrize("existing", [True, False], ids=["file", "folder"])
def test_what_may_not_be_written(open_folder: Path, existing: bool) -> None:
    backend = Backend(f"sqlite:///{open_folder / 'paddock.db'}")
    path = file_of(backend)
    try:
        if existing:
            insert(backend.store(), new_sandbox())
            backend.stores.pop().close()
            path.chmod(0o444)
        before = path.read_bytes() if existing else None
        open_folder.chmod(0o555)
        child = backend.child("unprivileged", NOBODY)
        says = child.says()
        assert "not writable; give paddock's user" in says
        assert (path.read_bytes() if path.exists() else None) == before
    finally:
        open_folder.chmod(0o755)
        backend.end()


def test_a_file_that_becomes_unwritable_shows_in_ping(open_folder: Path) -> None:
    """SQLite itself would only notice at the next new connection."""
    backend = Backend(f"sqlite:///{open_folder / 'paddock.db'}")
    try:
        store = backend.store()
        assert store.ping() == ""
        shutil.move(file_of(backend), open_folder / "moved.db")
        assert "check that its folder exists" in store.ping()
    finally:
        backend.end()


def test_a_full_disk_is_said_and_nothing_written(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.store()
    insert(store, new_sandbox("kept"))
    store.close()
    monkeypatch.setattr("controller.store.sqlite._PRAGMAS", ("journal_mode=WAL", "max_page_count=40"))
    store.open()
    error = str(
        refusal(lambda: insert(store, *(new_sandbox(f"b{number}", spec={"x": "y" * 5000}) for number in range(100))))
    )
    assert "disk full; free some disk space" in error
    assert [stored.name for stored in store.list("Sandbox")[0]] == ["kept"]
    insert(store, new_sandbox("small"))


def test_too_little_room_shows_in_ping(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.store()
    monkeypatch.setattr("controller.store.sqlite._MIN_FREE_BYTES", 1 << 80)
    assert "disk full" in store.ping()


def test_a_migration_elsewhere_that_never_ends(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.store.sqlite.MIGRATION_WAIT_SECONDS", 0.0)
    with backend.database() as database, database.migrating():
        assert "a migration by another process" in str(refusal(backend.store))


def test_questions_about_several_have_few_texts_and_right_answers(backend: Backend) -> None:
    """The driver keeps the plan of each text, for every connection: with a text for each number that is megabytes."""
    store, requested = backend.store(), set[str]()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        requested.add(statement)

    uids = [stored.uid for stored in insert(store, *(new_sandbox(f"box-{number}") for number in range(70)))]
    event.listen(Engine, "before_cursor_execute", note)
    try:
        for count in range(1, len(uids) + 1):
            with store.transaction() as transaction:
                transaction.load([*uids[:count], "gone"])
                assert all(map(transaction.is_stored, uids[:count]))
                assert not transaction.is_stored("gone")
                assert transaction.instances_of(uids[:count]) == {}
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len({name for name in requested if " IN (" in name}) <= 2 * 8
