"""Figures of a store: size, schema, and number of objects by kind."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, func, select, text

from controller.kinds.common.store_stats import StoreStats
from controller.store import migrate
from controller.store.schema import objects

_COUNTS = select(objects.c.kind, func.count()).group_by(objects.c.kind)
_POSTGRES_SIZE = text("SELECT pg_database_size(current_database())")
_SQLITE_SIZE = text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")


def figures(connection: Connection) -> StoreStats:
    """Read all figures in one transaction."""
    backend = connection.dialect.name
    info = connection.dialect.server_version_info or ()
    revision = migrate.current(connection) or ""
    counts: Mapping[str, int] = {str(kind): int(count) for kind, count in connection.execute(_COUNTS)}
    size: int = connection.execute(_SQLITE_SIZE if backend == "sqlite" else _POSTGRES_SIZE).scalar_one()
    return StoreStats(
        backend=backend,
        server_version=".".join(str(number) for number in info),
        revision=revision,
        schema_current=revision == migrate.head(),
        size_bytes=size,
        wal_bytes=_wal_bytes(connection) if backend == "sqlite" else None,
        objects=counts,
    )


def _wal_bytes(connection: Connection) -> int | None:
    """Return the size of SQLite's write-ahead log; None if unreadable, 0 without one."""
    try:
        return Path(f"{connection.engine.url.database}-wal").stat().st_size
    except FileNotFoundError:
        return 0
    except OSError:
        return None
