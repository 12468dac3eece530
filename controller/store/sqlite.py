"""SQLite: one file, one writer at a time, readers beside it (WAL)."""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import URL, Connection, Engine, create_engine, event

from controller.ports import Heard, LeaseState, StoreError, Wake
from controller.store.backup import copy_of, restore
from controller.store.database import MIGRATION_WAIT_SECONDS, Database, Quick
from controller.store.lease import FileLease, file_leases

_BEGIN = "paddock_begin"
_LOCK_POLL_SECONDS = 0.02
_OLDEST = (3, 35)  # which knows RETURNING
# Less than this free, and the next commit or checkpoint fails.
_MIN_FREE_BYTES = 1 << 20
# synchronous=NORMAL: with WAL a crash of the process loses nothing, a power cut at most the last commits.
# cache_size: KiB of each connection. What another one has written empties it, and the kernel has it all anyway.
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "cache_size=-256")


class SqliteDatabase(Database):
    def __init__(self, url: URL, *, wait_seconds: float) -> None:
        self._path = _file_of(url)
        self._wait_seconds = wait_seconds
        self._gate = threading.Lock()
        self._file: tuple[int, int] | None = None  # the one that was opened
        engine = _engine(url, wait_seconds)
        # A deferred transaction that turns to writing fails at once when another one wrote meanwhile, whatever
        # the busy timeout: writers say so at their BEGIN.
        writer = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        super().__init__(str(self._path), engine, reader=engine, writer=writer)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        self._check_there()
        with super().reading() as connection:
            yield connection

    def rows(self, statement: Quick, parameters: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        """As the base class, by the driver alone. One statement is a transaction of its own."""
        self._check_there()
        link = self._engine.raw_connection()
        try:
            return statement.rows_on_driver(link.dbapi_connection, self._engine.dialect, parameters)
        finally:
            link.close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        self._check_there()
        # SQLite's own lock is polled, with naps of up to 100 ms: among our threads, queue up here instead.
        if not self._gate.acquire(timeout=self._wait_seconds):
            raise StoreError(f"store {self.name}: busy with an earlier write; try again")
        try:
            with super().writing() as connection:
                yield connection
        finally:
            self._gate.release()

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        self._file = _prepare(self._path)
        with _lock(self._path), self._engine.connect() as connection:
            # Batch migrations drop and remake tables; with foreign keys on, that would delete the rows of others.
            # It cannot be switched inside a transaction, so this connection is made for the migration alone.
            connection.detach()
            _driver(connection).execute("PRAGMA foreign_keys=OFF")
            with connection.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"}).begin():
                yield connection
                if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                    raise StoreError(f"store {self.name}: the migration left rows without their parent; undone")

    @property
    def location(self) -> str:
        return f"{self._path.resolve()} {self._file}"

    def lease(self, migrate: Callable[[], None], name: str, seconds: float) -> FileLease:  # noqa: ARG002 - needs no tables
        self.close()
        return FileLease(self._path, name)

    def leases(self) -> Sequence[LeaseState]:
        return file_leases(self._path)

    def follow(self, store: str, writer: str, wake: Wake, heard: Heard) -> Callable[[], None]:  # noqa: ARG002 - a file has one daemon
        return lambda: None

    def _check_there(self) -> None:
        """Detect a removed file: SQLite would keep using it, and create an empty one for the next connection."""
        if self._file is None:
            return
        try:
            file_stat = os.stat(self._path)
        except FileNotFoundError:
            remedy = "its file was moved or removed; put it back, and check that its folder exists"
            raise StoreError(f"store {self.name} is gone: {remedy}") from None
        if (file_stat.st_dev, file_stat.st_ino) != self._file:
            raise StoreError(f"store {self.name}: was replaced by another file while in use; restart the daemon")

    def backup(self) -> BinaryIO:
        return copy_of(self._path)

    def restore(self, file: Path, stamp: str) -> str:
        aside = restore(file, self._path, stamp=stamp)
        remark = f"; the old store is kept as {aside}" if aside.exists() else ""
        return f"{self._path}: restored from {file}{remark}"

    def check(self) -> None:
        free = os.statvfs(self._path)
        if free.f_bavail * free.f_frsize < _MIN_FREE_BYTES:
            raise StoreError(f"store {self.name}: disk full; free some disk space")
        if not os.access(self._path, os.W_OK):
            raise StoreError(f"store {self.name}: not writable; give paddock's user access to it")


def check_version() -> None:
    """Raise StoreError if SQLite itself is too old for a store. Backups of another database can be read by it."""
    if sqlite3.sqlite_version_info < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise StoreError(f"store: this Python has SQLite {sqlite3.sqlite_version}; install {needed} or newer")


def _file_of(url: URL) -> Path:
    if url.database in (None, "", ":memory:") or str(url.database).startswith("file:"):
        raise StoreError("store: SQLite needs a file; write sqlite:////path/to/file")
    return Path(str(url.database)).absolute()


def _engine(url: URL, wait_seconds: float) -> Engine:
    # isolation_level None: the driver begins nothing by itself, so that ours is the only BEGIN.
    arguments = {"isolation_level": None, "timeout": wait_seconds}
    engine = create_engine(
        url.set(drivername="sqlite+pysqlite"),
        connect_args=arguments,
        pool_size=8,
        max_overflow=40,
        pool_timeout=max(wait_seconds, 1.0),
    )
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare_connection(connection: Any, _record: object) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _prepare(path: Path) -> tuple[int, int]:
    """Create the file and its folder for our user alone. Return the file's identity. Existing ones keep their mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_dir():
        raise StoreError(f"store {path}: is a folder; name a file in it, such as {path / 'paddock.db'}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        file_stat = os.fstat(handle)
        return file_stat.st_dev, file_stat.st_ino
    finally:
        os.close(handle)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock file beside the database. It is never removed: otherwise two processes could hold it."""
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + MIGRATION_WAIT_SECONDS
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise StoreError(f"store {path}: a migration by another process does not end; stop it")
            time.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
