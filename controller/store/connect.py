"""Databases by URL."""

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from controller.ports import StoreError
from controller.store.database import Database


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
        from controller.store.sqlite import SqliteDatabase, check_version

        check_version()
        return SqliteDatabase(parsed, wait_seconds=wait_seconds)
    if backend in ("postgresql", "postgres"):
        try:
            from controller.store.postgres import PostgresDatabase
        except ModuleNotFoundError as error:
            raise StoreError("store: PostgreSQL needs psycopg; run `pip install 'paddock[postgres]'`") from error
        return PostgresDatabase(parsed, schema=schema, wait_seconds=wait_seconds)
    raise StoreError(f"store: `{backend}` is not supported; use sqlite:////path/to/file or postgresql://...")
