"""Statements that the databases' drivers run, whoever sent them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def traced() -> Iterator[list[str]]:
    """Give the list that fills with the statements on connections opened from now on."""
    ran: list[str] = []

    class Tracing(psycopg.Cursor[Any]):
        def execute(self, query: Any, *given: Any, **more: Any) -> Any:
            ran.append(str(query))
            return super().execute(query, *given, **more)

    def trace(connection: Any, _record: object) -> None:
        if isinstance(connection, psycopg.Connection):
            connection.cursor_factory = Tracing
        else:
            connection.set_trace_callback(ran.append)

    event.listen(Engine, "connect", trace)
    try:
        yield ran
    finally:
        event.remove(Engine, "connect", trace)
