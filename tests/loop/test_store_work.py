"""Work that one sandbox's life makes for the store: transactions and statements, which are counted, not timed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from controller.store.sql_store import SqlStore
from tests.loop.harness import LoopHarness

ALLOWED_STATEMENTS = 69


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Every statement that SQLite's driver runs, whoever sent it."""
    ran: list[str] = []

    def trace(connection: object, _record: object) -> None:
        connection.set_trace_callback(ran.append)  # type: ignore[attr-defined]

    event.listen(Engine, "connect", trace)
    yield ran
    event.remove(Engine, "connect", trace)


def test_a_cold_life_writes_in_few_transactions(tmp_path: Path, statements: list[str]) -> None:
    """A sandbox is created, deleted and gone.

    Its transactions: created, recorded before its container exists, Ready, deletion requested, TERM recorded before it
    is sent, the end recorded before the container goes, gone.
    """
    store = SqlStore(f"sqlite:///{tmp_path / 'store.db'}")
    store.open()
    house = LoopHarness(store)
    for name in ("first", "second"):
        statements.clear()
        house.apply(name)
        house.settle(seconds=0)
        house.delete(name)
        house.settle(seconds=0)
    own = list(statements)
    assert house.names() == []
    house.close()
    store.close()
    assert own.count("BEGIN IMMEDIATE") == 7
    # A batch is traced row by row.
    verbs = [" ".join(each.split()[:3]) for each in own if re.match("SELECT|INSERT|UPDATE|DELETE", each)]
    sent = [verb for verb, before in zip(verbs, ["", *verbs], strict=False) if verb != before or verb[0] == "S"]
    assert len(sent) <= ALLOWED_STATEMENTS, sent
