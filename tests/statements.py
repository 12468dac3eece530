"""Statements that SQLite's driver runs, whoever sent them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def traced() -> Iterator[list[str]]:
    """Give the list that fills with the statements on connections opened from now on."""
    ran: list[str] = []

    def trace(connection: object, _record: object) -> None:
        connection.set_trace_callback(ran.append)  # type: ignore[attr-defined]

    event.listen(Engine, "connect", trace)
    try:
        yield ran
    finally:
        event.remove(Engine, "connect", trace)
