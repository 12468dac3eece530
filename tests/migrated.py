"""A SQLite store that is migrated already, so that tests which need any store don't each pay for making one.

It has no instance id yet: each copy gets one of its own when it is opened. How a store is made is tests/store's.
"""

import tempfile
from functools import cache
from pathlib import Path

from controller.store import migrate
from controller.store.connect import connect


def place_migrated(path: Path) -> str:
    """Put an empty store there; its URL."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(_migrated())
    return f"sqlite:///{path}"


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
