"""The audit chain that versions before schema 0011 wrote, one for all daemons, as they left it in a store."""

from collections.abc import Sequence

from sqlalchemy import insert, select

from controller.kinds.access.audit import GENESIS, AuditEntry
from controller.store.audit import ChainEnd, append
from controller.store.schema import audit_chain
from controller.store.sql_store import SqlStore

_EMPTY = {"id": 1, "last_id": 0, "last_hash": GENESIS, "pruned_id": 0, "pruned_hash": GENESIS}


def append_older(store: SqlStore, entries: Sequence[AuditEntry]) -> None:
    """Append entries to that chain; a hash of an entry is computed as it was then."""
    with store._changing("test") as connection:
        if connection.execute(select(audit_chain.c.id)).first() is None:
            connection.execute(insert(audit_chain).values(**_EMPTY))
        append(connection, entries, ChainEnd(""))
