"""Databases of their own on the tests' PostgreSQL server, for daemons."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg


def admin() -> psycopg.Connection:
    """Connect to the server as the user that may create databases."""
    url = os.environ["PADDOCK_TEST_POSTGRES"].replace("postgresql+psycopg://", "postgresql://")
    return psycopg.connect(url, autocommit=True)


@contextmanager
def new_database() -> Iterator[str]:
    """Create a database; yield its URL. It is gone at the end."""
    name = f"paddock_{uuid.uuid4().hex}"
    with admin() as connection:
        connection.execute(f"CREATE DATABASE {name}")
    before, _, options = os.environ["PADDOCK_TEST_POSTGRES"].partition("?")
    try:
        yield f"{before.rsplit('/', 1)[0]}/{name}?{options}"
    finally:
        with admin() as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def store_settings(backend: str) -> Iterator[dict[str, str]]:
    """Settings of a daemon with a store of its own on that backend, see `BACKENDS`."""
    if backend == "sqlite":
        yield {}
        return
    with new_database() as url:
        yield {"PADDOCK_DATABASE_URL": url}
