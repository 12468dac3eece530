"""Copies of a SQLite store: made while it is in use, checked, and put in its place while it is not.

How far a store has come (loop/store_lineage.py) is a file of its own and in no backup: so a restore is noticed.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from controller.ports import StoreError, StoreTooNew
from controller.store.migrate import known_revisions

_PREFIX = ".paddock-backup-"
_OURS = ("meta", "objects", "instances", "alembic_version")
_ASIDE = ("", "-wal", "-shm")


def copy_of(database: Path) -> BinaryIO:
    """A copy of one moment, by SQLite's online backup: writers go on meanwhile. Its file has no name any more."""
    handle, name = tempfile.mkstemp(prefix=_PREFIX, dir=database.parent)
    try:
        with closing(_reading(database)) as source, closing(sqlite3.connect(name)) as target:
            source.backup(target)
            # In WAL mode the copy would have to be written to be read; and who acts now is no part of what is kept.
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
    """The revision that a backup is at. Raises StoreError for a file that must not take a store's place."""
    try:
        with closing(_reading(file)) as found:
            tables = {row[0] for row in found.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables.issuperset(_OURS):
                raise StoreError(f"{file} is no backup of a Paddock store; name a file that `paddock backup` made")
            problem = found.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise StoreError(f"{file} is damaged ({problem}); take another backup")
            schema = found.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            if schema not in known_revisions():
                raise StoreTooNew(f"{file} was made by a newer paddock (schema {schema}); restore it with that one")
            revision: int = found.execute("SELECT revision FROM meta").fetchone()[0]
            return revision
    except (sqlite3.Error, OSError, TypeError) as error:
        raise StoreError(f"{file} can't be read ({error}); name a file that `paddock backup` made") from error


def restore(file: Path, database: Path, *, stamp: str) -> Path:
    """Put a backup in the place of a store that nobody uses (hold its lease). Gives where the old one is now.

    The copy is whole and on disk before anything is moved; the old store is kept beside it, marked with `stamp`.
    """
    check(file)
    fresh, aside = Path(f"{database}.restoring"), Path(f"{database}.before-{stamp}")
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _synced(fresh) as target, file.open("rb") as source:
            shutil.copyfileobj(source, target)
        check(fresh)
        for end in _ASIDE:  # what is left in the log of the old one belongs to the old one
            if Path(f"{database}{end}").exists():
                os.rename(f"{database}{end}", f"{aside}{end}")
        os.rename(fresh, database)
    except OSError as error:
        raise StoreError(f"{database}: the backup can't be put there: {error.strerror} ({error.filename})") from error
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
