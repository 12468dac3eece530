"""PostgreSQL, by psycopg 3. Every wait has a time-out: connecting, a statement, a lock, an idle transaction."""

import os
import select as polling
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import URL, Connection, Engine, create_engine, event, select, text
from sqlalchemy.exc import InvalidatePoolError, SQLAlchemyError

from controller.ports import Heard, LeaseState, Wake
from controller.store import portable
from controller.store.database import MIGRATION_WAIT_SECONDS, Database, Quick
from controller.store.errors import explain
from controller.store.follow import Follower
from controller.store.lease import RowLease, row_leases
from controller.store.migrate import upgrade
from controller.store.pipeline import pipelined, rows_alone, send_kept
from controller.store.schema import meta

# The number of our migration lock among the advisory locks of a database: "paddock" in ASCII.
_MIGRATION_LOCK = int.from_bytes(b"paddock", "big")
_STATEMENT_SECONDS = 30.0
_IDLE_TRANSACTION_SECONDS = 60.0
# How long an end of a connection waits for the other one to take what it sent. The server waits for a client that no
# longer reads an answer longer than the buffers with no time-out but this one, and so would all that wait for its lock.
_UNREAD_SECONDS = 20.0
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
# READ COMMITTED, whatever the server's default: a writer that has waited for the counter row sees all earlier commits,
# and so who holds its lease. Readers need one view of several tables: a list and its revision belong together.
_BEGIN_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A connection that was used so shortly before, and whose server did not hang up, is not asked if it is there.
_TRUSTED_SECONDS = 5.0
# What libpq should do unless the URL says otherwise: notice within seconds that the server is gone.
_LIBPQ = {
    "application_name": "paddock",
    "connect_timeout": "5",
    **{name: str(value) for name, value in _KEEPALIVES.items()},
    "tcp_user_timeout": str(int(_UNREAD_SECONDS * 1000)),
}


class PostgresDatabase(Database):
    """`schema` is the schema of all tables, made if missing; None: the user's default one."""

    def __init__(self, url: URL, *, schema: str | None, wait_seconds: float) -> None:
        engine = _engine(url, schema, wait_seconds)
        super().__init__(url.render_as_string(hide_password=True), engine, reader=engine, writer=engine)
        self._schema = schema
        self._followers: list[Follower] = []

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with super().reading() as connection, self._noting_loss(connection), pipelined(connection, _BEGIN_READING):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with super().writing() as connection, self._noting_loss(connection), pipelined(connection, _BEGIN_WRITING):
            yield connection

    @contextmanager
    def _noting_loss(self, connection: Connection) -> Iterator[None]:
        """Drop a connection that is lost: of statements on the driver, SQLAlchemy does not know."""
        try:
            yield
        except BaseException as error:
            if not connection.invalidated and not connection.closed:
                driver: Any = connection.connection.dbapi_connection
                if driver.closed:
                    connection.invalidate(error)
            raise

    def rows(self, statement: Quick, parameters: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        """As the base class, in one round trip. One statement is a transaction of its own."""
        link = self._engine.raw_connection()
        try:
            result_rows = rows_alone(link.dbapi_connection, link.info, statement, parameters)
        except BaseException as error:
            link.invalidate(error if isinstance(error, Exception) else None)
            raise
        link.close()
        return result_rows

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            wait = int(MIGRATION_WAIT_SECONDS * 1000)
            connection.execute(text(f"SET LOCAL lock_timeout = {wait}"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            if self._schema is not None:
                connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {_quote(self._schema)}"))
            yield connection

    def lease(self, migrate: Callable[[], None], name: str, seconds: float) -> RowLease:
        return RowLease(self, migrate, name, seconds=seconds)

    def leases(self) -> Sequence[LeaseState]:
        with self.reading() as connection:
            return row_leases(connection)

    def follow(self, store: str, writer: str, wake: Wake, heard: Heard) -> Callable[[], None]:
        follower = Follower(
            self._engine, store, writer=writer, wake=wake, heard=heard, lost=self._engine.dialect.loaded_dbapi.Error
        )
        self._followers.append(follower)
        return follower.end

    def close(self) -> None:
        for follower in self._followers:
            follower.end()
        super().close()

    def backup(self) -> BinaryIO:
        return portable.copy_of(self)

    def restore(self, file: Path, stamp: str) -> str:
        """Restore in one transaction; the old rows are first written beside the backup."""
        aside = file.with_name(f"{file.name}.before-{stamp}")
        try:
            with portable.open_copy(file) as opened:
                with self.migrating() as connection:
                    upgrade(connection, self.name)
                with self.backup() as before, _new(aside) as aside_file:
                    shutil.copyfileobj(before, aside_file)
                with opened.reading() as rows, self.writing() as target:
                    target.execute(text("SET LOCAL statement_timeout = 0"))
                    target.execute(select(meta).with_for_update())  # as all writers do, but those of the audit log
                    target.execute(text("LOCK TABLE audit_chains IN EXCLUSIVE MODE"))
                    portable.copy_rows(rows, target)
        except (SQLAlchemyError, self.driver_error, OSError) as error:
            raise explain(error, self.name).error from error
        return f"{self.name}: restored from {file}; the old store is kept as {aside}"

    def check(self) -> None:
        """Do nothing: no problem can be detected without writing."""


def _engine(url: URL, schema: str | None, wait_seconds: float) -> Engine:
    """Return the engine of connections, each with bounds on how long a statement, a lock or a dead peer may hold it."""
    url = url.set(drivername="postgresql+psycopg", query={**_LIBPQ, **url.query, "client_encoding": "utf8"})
    engine = create_engine(url, pool_size=5, max_overflow=15, pool_timeout=max(wait_seconds, 1.0))
    settings = [
        f"SET statement_timeout = {int(_STATEMENT_SECONDS * 1000)}",
        f"SET lock_timeout = {int(wait_seconds * 1000)}",
        f"SET idle_in_transaction_session_timeout = {int(_IDLE_TRANSACTION_SECONDS * 1000)}",
        f"SET tcp_user_timeout = {int(_UNREAD_SECONDS * 1000)}",
        *(f"SET tcp_{name} = {value}" for name, value in _KEEPALIVES.items()),
    ]
    if schema is not None:
        settings.append(f"SET search_path TO {_quote(schema)}")
    statement = "; ".join(settings)

    def prepare(connection: Any, record: Any) -> None:
        connection.prepare_threshold = None  # psycopg drops all prepared statements at times, and ours with its own
        connection.autocommit = True
        connection.execute(statement)
        connection.autocommit = False
        note_use(connection, record)

    def note_use(_connection: object, record: Any) -> None:
        record.info["used"] = time.monotonic()

    def check(connection: Any, record: Any, _proxy: object) -> None:
        if time.monotonic() - record.info["used"] < _TRUSTED_SECONDS and not _has_heard(connection):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error

    # First of all: what SQLAlchemy reads from a new connection depends on the search path.
    event.listen(engine, "connect", prepare, insert=True)
    event.listen(engine, "checkin", note_use)
    event.listen(engine, "checkout", check)
    event.listen(engine, "before_cursor_execute", send_kept)
    return engine


def _has_heard(driver: Any) -> bool:
    """Return True if the server said something unasked, or hung up."""
    if driver.closed:
        return True
    ready = polling.poll()
    ready.register(driver.fileno(), polling.POLLIN)
    return bool(ready.poll(0))


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
