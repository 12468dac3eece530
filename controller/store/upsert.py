"""INSERT ... ON CONFLICT, which SQLAlchemy has once for each database."""

from functools import cache
from typing import Any


@cache
def insert_of(dialect: str) -> Any:
    """Return the function that begins such an INSERT in that dialect.

    Imported here: PostgreSQL's takes 3 MiB, which a daemon on SQLite does not need.
    """
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert
    from sqlalchemy.dialects import sqlite

    return sqlite.insert
