"""Statements that the databases' drivers run, whoever sent them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine

from controller.store import pipeline


@contextmanager
def traced() -> Iterator[list[str]]:
    """Give the list that fills with the statements on connections opened from now on."""
    ran: list[str] = []
    send = pipeline._send

    class Tracing(psycopg.Cursor[Any]):
        def execute(self, query: Any, *given: Any, **more: Any) -> Any:
            ran.append(str(query))
            return super().execute(query, *given, **more)

    def trace(connection: Any, _record: object) -> None:
        if isinstance(connection, psycopg.Connection):
            connection.cursor_factory = Tracing
        else:
            connection.set_trace_callback(ran.append)

    def tracing(driver: Any, prepared: Any, statements: Sequence[Any]) -> None:
        ran.extend(statement.text for statement in statements if not statement.text.startswith(("BEGIN", "COMMIT")))
        send(driver, prepared, statements)

    event.listen(Engine, "connect", trace)
    try:
        with patch.object(pipeline, "_send", tracing):
            yield ran
    finally:
        event.remove(Engine, "connect", trace)
