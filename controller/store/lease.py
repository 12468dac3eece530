"""Leases of a store by name: one process holds each of them at a time; a standby takes over when it ends.

SQLite: a lock on a file beside the database, which the kernel frees with the process. A frozen holder keeps it, so it
can't expire. A file has one daemon: its leases, whatever their names, share one lock of the process.

PostgreSQL: a row of each name that has to be renewed, by the server's clock. A new holder raises its epoch, under the
same row lock that orders all writers. Every write transaction checks under that lock that the epoch is still ours; one
that only appends to the audit log locks the lease's row for it. So a holder that was frozen cannot write after a
takeover. By its own clock its lease expires before the row may be taken.
"""

import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Update, bindparam, func, insert, inspect, select, update
from sqlalchemy.exc import SQLAlchemyError

from controller.ports import LeaseState, StoreError
from controller.store.database import DEFAULT_LEASE, Database, Quick, StoreLease
from controller.store.errors import explain
from controller.store.schema import leases, meta

LEASE_SECONDS = 6.0
# What is done in this last part of the time may still be under way when it is over: begin nothing then.
_LAST_PART = 1 / 6
_HOST = "host/"
_FILE_HOST = "daemon"
# The stored name of the default host's lease is that of the only one there was: daemons of older versions exclude
# this one, and are excluded by it.
_STORED = {DEFAULT_LEASE: "daemon"}
_NOW = func.extract("epoch", func.clock_timestamp())
_HOLDER_OF = select(leases.c.holder, leases.c.epoch).where(leases.c.name == bindparam("lease"))
_HOLDER = Quick(_HOLDER_OF)
# Whoever takes the lease moves its row: he waits for a transaction that holds it.
_HOLDER_LOCKED = Quick(_HOLDER_OF.with_for_update(read=True))


@dataclass
class _FileLock:
    """A lock file that this process holds, and the names of the leases that it holds it for."""

    handle: int
    names: set[str] = field(default_factory=set)


_FILE_LOCKS: dict[Path, _FileLock] = {}
_FILE_LOCKS_GUARD = threading.Lock()


class FileLease(StoreLease):
    """Lock file beside the database. It is never removed: otherwise two processes could hold it."""

    def __init__(self, database: Path, name: str) -> None:
        self._path = _lock_file(database)
        self._name = _FILE_HOST if name.startswith(_HOST) else name
        self._held = False

    def acquire(self) -> str:
        with _FILE_LOCKS_GUARD:
            if self._held:
                return ""
            lock = _FILE_LOCKS.get(self._path)
            if lock is None:
                locked = _lock(self._path)
                if isinstance(locked, str):
                    return locked
                lock = _FILE_LOCKS[self._path] = _FileLock(locked)
            if self._name in lock.names:
                return _holder(lock.handle, self._path)
            lock.names.add(self._name)
            self._held = True
            return ""

    def renew(self) -> bool:
        return self.is_held()

    def is_held(self) -> bool:
        return self._held

    def release(self) -> None:
        with _FILE_LOCKS_GUARD:
            if not self._held:
                return
            self._held = False
            lock = _FILE_LOCKS[self._path]
            lock.names.discard(self._name)
            if not lock.names:
                del _FILE_LOCKS[self._path]
                os.close(lock.handle)

    def fence(self, connection: Connection, *, alone: bool = False) -> None:
        """Do nothing: a held file lock can't be taken by others."""


def _lock_file(database: Path) -> Path:
    return Path(f"{database.resolve()}.{_FILE_HOST}.lock")


def _lock(path: Path) -> int | str:
    """Return the locked file, or its holder, in words."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise explain(error, str(path)).error from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(handle, path)
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return holder
        raise explain(error, str(path)).error from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _holder(handle: int, path: Path) -> str:
    return f"pid {_pid(handle) or 'unknown'} (it holds {path})"


def _pid(handle: int) -> str:
    return os.pread(handle, 32, 0).decode(errors="replace").strip()


def file_leases(database: Path) -> Sequence[LeaseState]:
    """Return the state of a file's lock; none if it is free. Taking it, even to look, would keep out a daemon."""
    path = _lock_file(database)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ()
    try:
        if path in _FILE_LOCKS or _is_locked(os.fstat(handle).st_ino, _pid(handle)):
            return (LeaseState(_FILE_HOST, _holder(handle, path), 0, LEASE_SECONDS),)
        return ()
    finally:
        os.close(handle)


def _is_locked(inode: int, pid: str) -> bool:
    """Return True if the kernel's list of locks has one of that process on that file."""
    with open("/proc/locks") as lock_list:
        locks = (line.split() for line in lock_list if " FLOCK " in line and "->" not in line)
        return any(fields[4] == pid and fields[5].endswith(f":{inode}") for fields in locks)


def row_leases(connection: Connection) -> Sequence[LeaseState]:
    """Return the states of all leases, by the server's clock."""
    lease_rows = connection.execute(select(leases, _NOW.label("now")).order_by(leases.c.name))
    return [LeaseState(row.name, row.holder, row.epoch, row.expires_at - float(row.now)) for row in lease_rows]


def boot_seconds() -> float:
    """Return CLOCK_BOOTTIME: it is never set, and continues during sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RowLease(StoreLease):
    """Row `name` of the table leases. `migrate` makes the tables of an empty database."""

    def __init__(
        self,
        database: Database,
        migrate: Callable[[], None],
        name: str = DEFAULT_LEASE,
        *,
        seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._database, self._migrate = database, migrate
        self._title = "leader lease" if name == DEFAULT_LEASE else f"lease {name}"
        self._name = _STORED.get(name, name)
        self._row = leases.c.name == self._name
        self._seconds, self._clock = seconds, clock
        self.holder = f"pid {os.getpid()} on {socket.gethostname()} ({uuid.uuid4().hex[:8]})"
        self._epoch = 0
        self._until = 0.0  # by our own clock

    def acquire(self) -> str:
        if not self._has_tables():
            self._migrate()
        started_at = self._clock()
        with self._writing() as connection:
            # Without a lock first: the holder may be writing, or frozen in the middle of it.
            if holder := self._other_holder(connection):
                return holder
            connection.execute(select(meta.c.id).with_for_update())
            if holder := self._other_holder(connection):
                return holder
            self._epoch = self._take(connection)
        self._until = started_at + self._seconds
        return ""

    def _take(self, connection: Connection) -> int:
        stored_epoch = connection.execute(select(leases.c.epoch).where(self._row)).scalar_one_or_none()
        epoch = (stored_epoch or 0) + 1
        values = {"holder": self.holder, "epoch": epoch, "acquired_at": _NOW, "expires_at": _NOW + self._seconds}
        if stored_epoch is None:
            connection.execute(insert(leases).values(name=self._name, **values))
        else:
            connection.execute(update(leases).where(self._row).values(**values))
        return epoch

    def renew(self) -> bool:
        if not self._epoch:
            return False
        started_at = self._clock()
        with self._writing() as connection:
            renewed = self._guarded_update().values(expires_at=_NOW + self._seconds)
            renewed_count = in_time = connection.execute(renewed.where(leases.c.expires_at > _NOW)).rowcount
            if not in_time:
                renewed_count = connection.execute(renewed).rowcount
        self.lapses += renewed_count and not in_time
        if not renewed_count:
            self._epoch = 0
            return False
        self._until = started_at + self._seconds
        return True

    def is_held(self) -> bool:
        return bool(self._epoch) and self._clock() < self._until - self._seconds * _LAST_PART

    def release(self) -> None:
        """Release the lease for the next daemon. If the server is unreachable, it expires."""
        try:
            if self._epoch:
                with self._writing() as connection:
                    connection.execute(self._guarded_update().values(expires_at=0.0))
        except StoreError:
            pass
        finally:
            self._epoch = 0
            self._database.close()

    def fence(self, connection: Connection, *, alone: bool = False) -> None:
        (_HOLDER_LOCKED if alone else _HOLDER).run_then(connection, {"lease": self._name}, self._check)

    def _check(self, lease_rows: Sequence[Mapping[Any, Any]]) -> None:
        """Raise StoreError unless this row of the lease says that it is ours."""
        stored_holders = {(row["holder"], row["epoch"]) for row in lease_rows}
        if not self._epoch or stored_holders != {(self.holder, self._epoch)}:
            holder = lease_rows[0]["holder"] if lease_rows else "no daemon"
            raise StoreError(f"{self._database.name}: the {self._title} is held by {holder} now; nothing was written")

    def _other_holder(self, connection: Connection) -> str:
        """Return the other holder; "" if there is none."""
        current = select(leases, _NOW.label("now")).where(self._row)
        row = connection.execute(current).one_or_none()
        is_taken = row is not None and row.holder != self.holder and row.expires_at > float(row.now)
        return str(row.holder) if row is not None and is_taken else ""

    def _guarded_update(self) -> Update:
        return update(leases).where(self._row, leases.c.holder == self.holder, leases.c.epoch == self._epoch)

    def _has_tables(self) -> bool:
        with self._writing() as connection:
            return inspect(connection).has_table(leases.name)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._database.writing() as connection:
                yield connection
        except (SQLAlchemyError, self._database.driver_error) as error:
            raise explain(error, self._database.name).error from error
