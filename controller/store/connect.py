"""Databases by URL, with three kinds of transactions: reading, writing, migrating."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sqlalchemy import Connection, Engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from controller.kinds.common.store_stats import Connections
from controller.ports import StoreError

if TYPE_CHECKING:
    from controller.store.lease import StoreLease

# A migration that hangs elsewhere must end in an error, not in a daemon that never starts.
MIGRATION_WAIT_SECONDS = 60.0


class Database(ABC):
    """One database; `name` is for error messages. The constructor connects nothing; the pool fills on use."""

    def __init__(self, name: str, engine: Engine, *, reader: Engine, writer: Engine) -> None:
        self.name = name
        self._engine = engine
        self._reader = reader
        self._writer = writer

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction: one consistent view, never waiting for a writer."""
        with self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction: commits at the end of the block, rolls back on any exception."""
        with self._writer.begin() as connection:
            yield connection

    @abstractmethod
    def migrating(self) -> AbstractContextManager[Connection]:
        """Open a write transaction under the migration lock. Raises OSError, StoreError, SQLAlchemyError."""

    @abstractmethod
    def check(self) -> None:
        """Raise StoreError for problems of a write that can be detected without writing."""

    @abstractmethod
    def lease(self, migrate: Callable[[], None], seconds: float) -> "StoreLease":
        """Return the leader lease; it takes over this Database. `migrate` makes missing tables."""

    @abstractmethod
    def backup(self) -> BinaryIO:
        """Copy the database into an unlinked open file. Raises StoreError, OSError, sqlite3.Error."""

    @abstractmethod
    def restore(self, file: Path, stamp: str) -> str:
        """Replace this unused database by a backup. Return a message. Raises StoreError."""

    def connections(self) -> Connections:
        """Return the counts of open connections. No I/O."""
        pool = self._engine.pool
        if not isinstance(pool, QueuePool):
            return Connections(0, 0, 0, 0)
        return Connections(
            pool.checkedin(), pool.checkedout(), max(0, pool.overflow()), pool.size() + pool._max_overflow
        )

    def close(self) -> None:
        left = self._engine.pool
        self._engine.dispose()
        # Connections in use now return to a pool that is not used any more.
        event.listen(left, "checkin", _close_at_once)
        left.dispose()


def _close_at_once(_connection: object, record: Any) -> None:
    record.invalidate()


def connect(url: str, *, schema: str | None = None, wait_seconds: float = 5.0) -> Database:
    """Return the database of a SQLAlchemy URL (`sqlite:////path/to/file` or `postgresql://user@host/name`).

    A writer waits `wait_seconds` for another one to finish. Raises StoreError for a URL that cannot be used.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError("store: not a database URL; write sqlite:////path/to/file or postgresql://...") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        from controller.store.sqlite import SqliteDatabase

        return SqliteDatabase(parsed, wait_seconds=wait_seconds)
    if backend in ("postgresql", "postgres"):
        from controller.store.postgres import PostgresDatabase

        return PostgresDatabase(parsed, schema=schema, wait_seconds=wait_seconds)
    raise StoreError(f"store: `{backend}` is not supported; use sqlite:////path/to/file or postgresql://...")
