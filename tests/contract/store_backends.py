"""Databases of their own for store tests, what is put into them, and other processes that use them."""

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.runtime.container import Limits
from controller.ports import StoreError
from controller.store.connect import connect
from controller.store.database import Database
from controller.store.schema import metadata
from controller.store.sql_store import SqlStore
from tests.forks import FORKS
from tests.migrated import place_migrated

BACKENDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
# For what does not depend on SQL, SQLite alone will do.
both_stores = pytest.mark.parametrize("backend", BACKENDS, indirect=True)
_EMPTY: list[str] = []  # schemas on PostgreSQL that are migrated and hold nothing


@dataclass
class Backend:
    """One database of one test. Stores and processes made here end with the test."""

    url: str
    schema: str | None = None
    stores: list[SqlStore] = field(default_factory=list)
    children: list["Child"] = field(default_factory=list)

    def store(self, **options: Any) -> SqlStore:
        """One more store on the same database, open."""
        store = SqlStore(self.url, schema=self.schema, **options)
        self.stores.append(store)
        store.open()
        return store

    def child(self, command: str, *arguments: object) -> "Child":
        """Another process; see store_process.py for the commands."""
        child = Child(command, self.url, self.schema, *arguments)
        self.children.append(child)
        return child

    def path(self) -> Path:
        """The file of a database on SQLite."""
        return Path(self.url.removeprefix("sqlite:///"))

    @contextmanager
    def database(self) -> Iterator[Database]:
        """Below the store, for tests that look at or break what is underneath."""
        database = connect(self.url, schema=self.schema)
        try:
            yield database
        finally:
            database.close()

    def end(self, *, keep: bool = False) -> None:
        """`keep`: a schema is emptied for the next test, which need not make it."""
        for child in self.children:
            child.end()
        for store in self.stores:
            store.close()
        if self.schema is None:
            return
        with self.database() as database, database.writing() as connection:
            table_names = set(inspect(connection).get_table_names()) - {"alembic_version"}
            if keep and table_names == metadata.tables.keys():
                connection.exec_driver_sql(f"TRUNCATE {', '.join(table_names)} RESTART IDENTITY CASCADE")
                _EMPTY.append(self.schema)
            else:
                connection.exec_driver_sql(f'DROP SCHEMA IF EXISTS "{self.schema}" CASCADE')


class Child:
    """A process that says what it found, and goes on when told to.

    Forked off a process that has everything imported already: so it costs a hundredth of what a new interpreter does.
    """

    def __init__(self, command: str, *arguments: Any) -> None:
        self._ours, connection = FORKS.Pipe()
        self._process = FORKS.Process(target=_run, args=(connection, command, *arguments), daemon=True)
        self._process.start()
        connection.close()

    def says(self) -> Any:
        """Return its next line; fail the test when it ended instead."""
        try:
            return self._ours.recv()
        except EOFError:
            self._process.join()
            raise AssertionError(f"the child ended with {self._process.exitcode}") from None

    def go(self) -> None:
        self._ours.send("go")

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        self.kill()
        self._ours.close()


def _run(*arguments: Any) -> None:
    from tests.contract import store_process  # which imports this module

    store_process.main(*arguments)


@contextmanager
def make_backend(dialect: str, folder: Path, *, new: bool = False) -> Iterator[Backend]:
    """A database that is empty and migrated. `new`: there is nothing yet, on SQLite not even the folder."""
    if dialect == "sqlite":
        path = folder / "store" / "paddock.db"
        backend = Backend(f"sqlite:///{path}" if new else place_migrated(path))
    else:
        empty = _EMPTY.pop() if _EMPTY and not new else f"test_{uuid.uuid4().hex}"
        backend = Backend(os.environ["PADDOCK_TEST_POSTGRES"], schema=empty)
    well = False
    try:
        yield backend
        well = True
    finally:
        backend.end(keep=well and not new)


def new_sandbox(name: str = "box", namespace: str = "default", uid: str = "", **fields: Any) -> StoredObject:
    """A small object; its uid follows from its name unless given."""
    fields = {"spec": {"template": {"image": "tiny"}}, "created_at": 1.5, **fields}
    return StoredObject("Sandbox", namespace, name, uid or f"uid-{namespace}-{name}", **fields)


def instance(obj: StoredObject, **fields: Any) -> Instance:
    fields = {"role": "sandbox", "reserves": Limits(500, 1 << 29, 64), "created_at": 2.5, **fields}
    return Instance(f"pdk-{obj.name}", obj.uid, obj.kind, obj.namespace, obj.name, **fields)


def event(obj: StoredObject, message: str = "made", at: float = 10.0, **fields: Any) -> Event:
    return Event(obj.ref, "Normal", fields.pop("reason", "Created"), message, at, **fields)


def insert(store: SqlStore, *objects: StoredObject) -> list[StoredObject]:
    """Put them, in one transaction."""
    with store.transaction() as transaction:
        return [transaction.put(stored) for stored in objects]


def refusal(action: Any) -> StoreError:
    """The StoreError that calling `action` raises."""
    with pytest.raises(StoreError) as raised:
        action()
    return raised.value
