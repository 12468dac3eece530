"""Copy of a store's rows between databases of the same schema. So PostgreSQL has the same backups as SQLite.

A backup is a SQLite file either way, and can be restored into either: that is also how a store moves from the one to
the other. Who acts now (the leases) is no part of it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, Table, delete, func, insert, make_url, select, text

from controller.store import backup
from controller.store.database import Database
from controller.store.migrate import upgrade
from controller.store.schema import events, leases, metadata
from controller.store.sqlite import SqliteDatabase

_ROWS_AT_ONCE = 500


def tables() -> list[Table]:
    """Return the tables of a backup, parents before their children."""
    return [table for table in metadata.sorted_tables if table is not leases]


def copy_of(source: Database) -> BinaryIO:
    """Copy all rows of one snapshot into an unlinked backup file, without blocking writers."""
    with tempfile.TemporaryDirectory(prefix="paddock-backup-") as folder:
        path = Path(folder) / "paddock.db"
        with (
            closing(_sqlite(path)) as target_database,
            source.reading() as rows,
            target_database.migrating() as target,
        ):
            upgrade(target, target_database.name)
            copy_rows(rows, target)
        return backup.copy_of(path)


@contextmanager
def open_copy(file: Path) -> Iterator[Database]:
    """Open a migrated copy of a backup; the file itself is unchanged. Raises StoreError if it is not a backup."""
    backup.check(file)
    with tempfile.TemporaryDirectory(prefix="paddock-restore-") as folder:
        path = Path(folder) / "paddock.db"
        shutil.copyfile(file, path)
        with closing(_sqlite(path)) as database:
            with database.migrating() as connection:
                upgrade(connection, database.name)
            yield database


def copy_rows(source: Connection, target: Connection) -> None:
    """Replace all rows of `target` by those of `source`."""
    for table in reversed(tables()):
        target.execute(delete(table))
    for table in tables():
        source_rows = source.execution_options(yield_per=_ROWS_AT_ONCE).execute(select(table))
        for rows in source_rows.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in rows])
    if target.dialect.name == "postgresql":
        # Rows that bring their numbers leave the counter behind.
        newest = select(func.coalesce(func.max(events.c.id), 0) + 1).scalar_subquery()
        target.execute(select(func.setval(text("pg_get_serial_sequence('events', 'id')"), newest, False)))


def _sqlite(path: Path) -> SqliteDatabase:
    return SqliteDatabase(make_url(f"sqlite:///{path}"), wait_seconds=5.0)
