"""A database with three kinds of transactions: reading, writing, migrating."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, Delete, Engine, Insert, Select, Update, event
from sqlalchemy.engine import Dialect
from sqlalchemy.pool import QueuePool

from controller.kinds.common.store_stats import Connections

# A migration that hangs elsewhere must end in an error, not in a daemon that never starts.
MIGRATION_WAIT_SECONDS = 60.0
# The lease of the daemon of the only host there is, until hosts have names.
DEFAULT_LEASE = "host/host"


class Quick:
    """A statement of the calls that are made most. On SQLite the driver alone runs it, in a fraction of the time.

    `columns` are those that a write sets. Both results have `fetchone` and `fetchall`; the driver's errors are foreign.
    """

    def __init__(
        self, statement: "Select[Any] | Insert | Update | Delete", columns: Sequence[str] | None = None
    ) -> None:
        self._statement, self._columns = statement, columns
        self._compiled: tuple[str, Sequence[str], Mapping[str, Any]] | None = None

    def run(self, connection: Connection, parameters: Mapping[str, Any] | None = None) -> Any:
        """Run it in the transaction of a connection."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, parameters or {})
        return self.on_driver(connection.connection.dbapi_connection, connection.dialect, parameters or {})

    def on_driver(self, driver: Any, dialect: Dialect, parameters: Mapping[str, Any]) -> Any:
        """Run it on a connection of SQLite's driver; return the cursor."""
        if self._compiled is None:
            made = self._statement.compile(dialect=dialect, column_keys=self._columns)
            fixed: Mapping[str, Any] = {name: each for name, each in made.params.items() if each is not None}
            self._compiled = str(made), tuple(getattr(made, "positiontup", None) or ()), fixed
        text, names, fixed = self._compiled
        return driver.execute(text, [parameters[each] if each in parameters else fixed[each] for each in names])

    def mapped(self, connection: Connection, parameters: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return the rows that it finds, by the names of their columns."""
        return [dict(each) for each in connection.execute(self._statement, parameters).mappings()]


class StoreLease(ABC):
    """ports.Lease, and the fencing check before each commit of the store."""

    @abstractmethod
    def acquire(self) -> str: ...

    @abstractmethod
    def renew(self) -> bool: ...

    @abstractmethod
    def held(self) -> bool: ...

    @abstractmethod
    def release(self) -> None: ...

    @abstractmethod
    def fence(self, connection: Connection) -> None:
        """Raise StoreError if another daemon holds the lease. The transaction must hold the counter row."""


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

    def rows(self, statement: Quick, parameters: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return the rows that a statement finds: a read transaction of its own."""
        with self.reading() as connection:
            return statement.mapped(connection, parameters)

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
    def lease(self, migrate: Callable[[], None], name: str, seconds: float) -> StoreLease:
        """Return the lease of that name; it takes over this Database. `migrate` makes missing tables."""

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
