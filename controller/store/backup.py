"""Backups of a SQLite store: copied online, checked, and restored offline.

The store's lineage (loop/store_lineage.py) is a file of its own outside the backup: so a restore is noticed.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from sqlalchemy import create_engine

from controller.ports import StoreError, StoreTooNew
from controller.store.migrate import known_revisions, refuse_older, upgrade

_PREFIX = ".paddock-backup-"
_OURS = ("meta", "objects", "instances", "alembic_version")
_Contents = dict[tuple[str, str], frozenset[tuple[str, int]]]
_ASIDE = ("", "-wal", "-shm")


def copy_of(database: Path) -> BinaryIO:
    """Copy the database by SQLite's online backup, without blocking writers. The returned file is unlinked."""
    handle, name = tempfile.mkstemp(prefix=_PREFIX, dir=database.parent)
    try:
        with closing(_reading(database)) as source, closing(sqlite3.connect(name)) as target:
            source.backup(target)
            # A copy in WAL mode could not be read without writing to it. Leases are no part of a backup.
            target.execute("PRAGMA journal_mode=DELETE")
            target.execute("DELETE FROM leases")
            target.commit()
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
    finally:
        os.unlink(name)


def check(file: Path) -> int:
    """Return the revision of a backup. Raises StoreError for a file that must not be restored."""
    try:
        with closing(_reading(file)) as database:
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables.issuperset(_OURS):
                raise StoreError(f"{file}: is not a backup of a Paddock store; name a file made by `paddock backup`")
            problem = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise StoreError(f"{file}: is damaged ({problem}); use another backup")
            schema = database.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            if schema not in (known_ids := known_revisions()):
                refuse_older(f"{file}", schema, known_ids)
                raise StoreTooNew(
                    f"{file}: was made by a newer paddock (schema {schema}); restore it with that version"
                )
            if foreign := _foreign(_contents(database), _reference(schema)):
                reason = f"has {foreign}, which no Paddock store has; use another backup"
                raise StoreError(f"{file}: {reason}")
            revision: int = database.execute("SELECT revision FROM meta").fetchone()[0]
            return revision
    except (sqlite3.Error, OSError, TypeError) as error:
        raise StoreError(f"{file}: can't be read ({error}); name a file of `paddock backup`") from error


def _contents(database: sqlite3.Connection) -> _Contents:
    """Return the tables, views and triggers of a database, each with its columns (name and kind)."""
    query = "SELECT type, name FROM sqlite_master WHERE type <> 'index' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    contents: _Contents = {}
    for type_, name in database.execute(query).fetchall():
        columns = database.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (name,)).fetchall()
        contents[type_, name] = frozenset(columns)
    return contents


@lru_cache
def _reference(schema: str) -> _Contents:
    """Return the contents of an empty store of that schema."""
    with tempfile.TemporaryDirectory(prefix="paddock-schema-") as folder:
        path = Path(folder) / "paddock.db"
        engine = create_engine(f"sqlite:///{path}")
        try:
            with engine.begin() as connection:
                upgrade(connection, "a new store", revision=schema)
        finally:
            engine.dispose()
        with closing(_reading(path)) as database:
            return _contents(database)


def _foreign(contents: _Contents, reference: _Contents) -> str:
    """Return what a database has beside a store's contents, or in another form; "" if there is nothing."""
    return ", ".join(
        f"the {type_} `{name[:60]}`" + (" with other columns" if (type_, name) in reference else "")
        for (type_, name), columns in sorted(contents.items())
        if reference.get((type_, name)) != columns
    )


def restore(file: Path, database: Path, *, stamp: str) -> Path:
    """Replace a store that is not in use by a backup (hold its lease). Return the path of the old store.

    The copy is synced to disk before anything is moved; the old store is kept beside it, with `stamp` in its name.
    """
    check(file)
    fresh, aside = Path(f"{database}.restoring"), Path(f"{database}.before-{stamp}")
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _synced(fresh) as target, file.open("rb") as source:
            shutil.copyfileobj(source, target)
        check(fresh)
        for end in _ASIDE:  # the old WAL belongs to the old database
            if Path(f"{database}{end}").exists():
                os.rename(f"{database}{end}", f"{aside}{end}")
        os.rename(fresh, database)
    except OSError as error:
        raise StoreError(f"{database}: can't be replaced by the backup: {error.strerror} ({error.filename})") from error
    finally:
        fresh.unlink(missing_ok=True)
    return aside


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
