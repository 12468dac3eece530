"""A database with three kinds of transactions: reading, writing, migrating."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from sqlalchemy import CompoundSelect, Connection, Delete, Engine, Insert, Select, Update, event
from sqlalchemy.engine import Dialect
from sqlalchemy.pool import QueuePool

from controller.kinds.common.store_stats import Connections
from controller.ports import Heard, LeaseState, Wake

# A migration that hangs elsewhere must end in an error, not in a daemon that never starts.
MIGRATION_WAIT_SECONDS = 60.0
# The lease of the daemon of the only host there is, until hosts have names.
DEFAULT_LEASE = "host/host"


_IN_ONE_QUERY = 500
_Rows = Sequence[Mapping[Any, Any]]


def batches(values: Iterable[str]) -> Iterator[Sequence[str]]:
    """Split values into batches within the databases' parameter limit.

    Compiled statements are cached by text (SQLite: 20 KiB each, per connection). So the last value is repeated up to a
    power of two, which keeps the number of texts small.
    """
    remaining = iter(values)
    while some := list(islice(remaining, _IN_ONE_QUERY)):
        yield some + some[-1:] * ((1 << (len(some) - 1).bit_length()) - len(some))


# Option of a connection: the statements that are kept back there, if it has a pipeline.
KEPT = "kept"


class Quick:
    """A statement of the calls that are made most: the driver alone runs it, in a fraction of SQLAlchemy's time.

    `columns` are those that a write sets. A parameter that is a list stands for an expanding one, and each length of it
    is a text of its own. The driver's errors are foreign; on PostgreSQL, what `run`, `many` and `run_then` raise may be
    raised by a later call of the transaction, or at its commit.
    """

    def __init__(
        self,
        statement: "Select[Any] | CompoundSelect[Any] | Insert | Update | Delete",
        columns: Sequence[str] | None = None,
    ) -> None:
        self._statement, self._columns = statement, columns
        self._compiled: dict[tuple[str, tuple[int, ...]], _Compiled] = {}

    def run(self, connection: Connection, parameters: Mapping[str, Any]) -> None:
        """Run it in the transaction of a connection, before anything else asks there, at the commit at the latest."""
        self.many(connection, [parameters])

    def many(self, connection: Connection, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each of these parameters, none of which is a list. As `run`."""
        if not parameters:
            return
        if pipeline := connection.get_execution_options().get(KEPT):
            for row in parameters:
                pipeline.later(self, row)
            return
        compiled = self.compiled(connection.dialect, parameters[0])
        driver: Any = connection.connection.dbapi_connection
        if len(parameters) == 1:
            driver.execute(compiled.text, compiled.values(parameters[0]))
        else:
            driver.executemany(compiled.text, [compiled.values(row) for row in parameters])

    def run_then(self, connection: Connection, parameters: Mapping[str, Any], done: Callable[[_Rows], None]) -> None:
        """As `run`, and call `done` with the rows that it found, before anything else that is asked there is told."""
        if pipeline := connection.get_execution_options().get(KEPT):
            pipeline.later(self, parameters, done)
        else:
            done(self.rows(connection, parameters))

    def rows(self, connection: Connection, parameters: Mapping[str, Any]) -> _Rows:
        """Return the rows that it finds in the transaction of a connection, by the names of their columns."""
        if pipeline := connection.get_execution_options().get(KEPT):
            rows: _Rows = pipeline.rows(self, parameters)
            return rows
        return self.rows_on_driver(connection.connection.dbapi_connection, connection.dialect, parameters)

    def rows_on_driver(self, driver: Any, dialect: Dialect, parameters: Mapping[str, Any]) -> _Rows:
        """Return the rows that it finds on a connection of SQLite's driver.

        All are read: a cursor that is left open keeps its view of the file.
        """
        compiled, cursor = self.compiled(dialect, parameters), driver.cursor()
        cursor.row_factory = sqlite3.Row  # as small as a tuple
        rows: _Rows = cursor.execute(compiled.text, compiled.values(parameters)).fetchall()
        return rows

    def compiled(self, dialect: Dialect, parameters: Mapping[str, Any]) -> "_Compiled":
        """Return it as a driver takes it, for lists as long as those of the parameters."""
        lists = _lists(parameters)
        kind = (dialect.name, tuple(map(len, lists.values())))
        compiled = self._compiled.get(kind)
        if compiled is None:
            compiled_statement = self._statement.compile(dialect=dialect, column_keys=self._columns)
            column_names = {name for name in self._columns or () if name in compiled_statement.params}
            fixed = {
                name: constant
                for name, constant in compiled_statement.params.items()
                if constant is not None and name not in column_names
            }
            text, names = str(compiled_statement), cast("Sequence[str] | None", compiled_statement.positiontup)
            if lists:
                expanded = compiled_statement.construct_expanded_state(lists)
                text, names = expanded.statement, expanded.positiontup
            compiled = self._compiled[kind] = _Compiled(text, names or (), fixed)
        return compiled


class _Compiled(NamedTuple):
    """The text of a statement, its parameters in order, and those with a value of their own."""

    text: str
    names: Sequence[str]
    fixed: Mapping[str, Any]

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the values in order. Those of a list are named by their places, from 1 on."""
        all_values = {**self.fixed, **parameters}
        for name, elements in _lists(parameters).items():
            all_values |= {f"{name}_{place}": value for place, value in enumerate(elements, 1)}
        return list(map(all_values.__getitem__, self.names))


def _lists(parameters: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    if list not in map(type, parameters.values()):  # nearly always
        return {}
    return {name: elements for name, elements in parameters.items() if type(elements) is list}


class StoreLease(ABC):
    """ports.Lease, and the fencing check before each commit of the store.

    `holder` is this process in words, as other daemons see it ("" for a file: its lock says who holds it).
    """

    holder: str = ""
    lapses: int = 0

    @abstractmethod
    def acquire(self) -> str: ...

    @abstractmethod
    def renew(self) -> bool: ...

    @abstractmethod
    def is_held(self) -> bool: ...

    @abstractmethod
    def release(self) -> None: ...

    @abstractmethod
    def fence(self, connection: Connection, *, alone: bool = False) -> None:
        """Raise StoreError if another daemon holds the lease.

        The transaction must hold the counter row. `alone`: it does not; the lease can't be taken until its end.
        """


class Database(ABC):
    """One database; `name` is for error messages. The constructor connects nothing; the pool fills on use."""

    def __init__(self, name: str, engine: Engine, *, reader: Engine, writer: Engine) -> None:
        self.name = name
        self.driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._engine = engine
        self._reader = reader
        self._writer = writer

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction: one consistent view, never waiting for a writer."""
        with self._reader.begin() as connection:
            yield connection

    def rows(self, statement: Quick, parameters: Mapping[str, Any]) -> _Rows:
        """Return the rows that a statement finds: a read transaction of its own."""
        with self.reading() as connection:
            return statement.rows(connection, parameters)

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

    @property
    def location(self) -> str:
        """Location of the database. A copy of it has another one."""
        return self.name

    @abstractmethod
    def lease(self, migrate: Callable[[], None], name: str, seconds: float) -> StoreLease:
        """Return the lease of that name; it takes over this Database. `migrate` makes missing tables."""

    @abstractmethod
    def leases(self) -> Sequence[LeaseState]:
        """Return the states of the leases that are known. Raises OSError, SQLAlchemyError."""

    @abstractmethod
    def follow(self, store: str, writer: str, wake: Wake, heard: Heard) -> Callable[[], None]:
        """Call `wake` on commits to that store by writers other than that one, on another thread. Return the undo.

        `heard` gets their words.
        """

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
            pool.checkedin(),
            pool.checkedout(),
            max(0, pool.overflow()),
            pool.size() + pool._max_overflow,  # noqa: SLF001 - no public name
        )

    def close(self) -> None:
        pool = self._engine.pool
        self._engine.dispose()
        # Connections in use now return to a pool that is not used any more.
        event.listen(pool, "checkin", _close_at_once)
        pool.dispose()


def _close_at_once(_connection: object, record: Any) -> None:
    record.invalidate()
