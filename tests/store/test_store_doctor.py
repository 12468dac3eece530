"""The store as `paddock doctor` sees it: nothing is made, nothing is migrated."""

import sqlite3
from pathlib import Path

import pytest

from controller.store.doctor import inspect_store
from tests.migrated import open_store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with open_store(tmp_path):
        return tmp_path / "paddock.db"


def test_a_store_in_order_is_left_as_it_is(file: Path) -> None:
    with sqlite3.connect(file) as before:
        rows = before.execute("SELECT * FROM meta").fetchall()
    store_facts = inspect_store(f"sqlite:///{file}")
    assert (store_facts.trouble, store_facts.refuses, store_facts.is_supported) == ("", "", True)
    assert store_facts.schema == store_facts.newest != ""
    with sqlite3.connect(file) as after:
        assert after.execute("SELECT * FROM meta").fetchall() == rows


def test_none_yet_is_not_made(tmp_path: Path) -> None:
    store_facts = inspect_store(f"sqlite:///{tmp_path}/folder/paddock.db")
    assert (store_facts.trouble, store_facts.refuses, store_facts.schema) == ("", "", "")
    assert not list(tmp_path.iterdir())


def test_one_of_a_newer_paddock(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE meta SET compatible_since = '9998'")
    store_facts = inspect_store(f"sqlite:///{file}")
    assert (store_facts.schema, store_facts.is_supported) == ("9999", False)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET compatible_since = '0010'")
    assert inspect_store(f"sqlite:///{file}").is_supported, "it lets this version use it"


def test_one_that_is_held_or_damaged(file: Path) -> None:
    with sqlite3.connect(file, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert "held by another process" in inspect_store(f"sqlite:///{file}", wait_seconds=0.1).refuses
    holder.close()
    file.write_bytes(b"no database at all" * 1000)
    assert "damaged" in inspect_store(f"sqlite:///{file}").trouble


def test_a_url_that_is_none() -> None:
    assert inspect_store("nonsense").trouble
    assert "not supported" in inspect_store("mysql://host/x").trouble
