"""A SQLite store that is migrated already, so that tests which need any store don't each pay for making one.

It has no instance id yet: each copy gets one of its own when it is opened. How a store is made is tests/store's.
All stores on SQLite share what their statements were compiled to, which is a tenth of the time of those that live for
one test. No commit waits for the disk: these stores outlive a killed process, and need not outlive a power cut.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event

from controller.store import migrate, sqlite
from controller.store.connect import connect
from controller.store.sql_store import SqlStore

_PLACED: set[str] = set()  # paths of the stores that were put somewhere by this process
_prepare_connection = sqlite._prepare_connection


def _prepare_without_disk(connection: Any, record: object) -> None:
    """Prepare a connection as the product does; one to a store for a test never waits for the disk."""
    _prepare_connection(connection, record)
    if connection.execute("PRAGMA database_list").fetchone()[2] in _PLACED:
        connection.execute("PRAGMA synchronous=OFF")


sqlite._prepare_connection = _prepare_without_disk


def place_migrated(path: Path) -> str:
    """Put an empty store there; its URL."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(_migrated())
    _PLACED.add(str(path.resolve()))
    return f"sqlite:///{path}"


@contextmanager
def open_store(folder: Path, name: str = "paddock.db") -> Iterator[SqlStore]:
    """Open an empty store in a folder; it is closed in the end."""
    store = SqlStore(place_migrated(folder / name))
    store.open()
    try:
        yield store
    finally:
        store.close()


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "paddock.db"
        database = connect(f"sqlite:///{path}")
        try:
            with database.migrating() as connection:
                migrate.upgrade(connection, database.name)
        finally:
            database.close()  # the last to leave writes the log into the file
        return path.read_bytes()


class _Compiled(dict[Any, Any]):
    """Statements as they were compiled, for each kind of database instead of each connection to one."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), value)


_COMPILED = _Compiled()


@event.listens_for(Engine, "engine_connect")
def _share_compiled(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        connection.execution_options(compiled_cache=_COMPILED)
