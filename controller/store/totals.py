"""Totals by scope: what instances reserve, and the number of objects.

A scope is a namespace, a host (`host_scope`; "" for the default one), or a pool (`pool_scope`). The rows move in the
transaction that moves instances and objects, so a rollback or a crash moves both or none. `recount` makes them anew.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, text
from sqlalchemy.dialects import postgresql, sqlite

from controller.kinds.planning.instance_record import SANDBOX
from controller.kinds.quota import RESOURCES, Amount, host_scope, pool_scope
from controller.store.database import Quick
from controller.store.rows import Row
from controller.store.schema import totals

OBJECTS = "objects"
_UNITS = tuple(each.unit for each in RESOURCES)
_COLUMNS = (*_UNITS, OBJECTS)
_INSERT_OF: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
OF_SCOPES = Quick(select(totals).where(totals.c.scope.in_(bindparam("scopes", expanding=True))))
_SUMMED = "cpu_millicores, memory_bytes, pids, disk_bytes, gpus"
_SEAT = f"CASE WHEN role = '{SANDBOX}' THEN 1 ELSE 0 END"
_SUM_INSTANCES = text(
    f"INSERT INTO totals (scope, {_SUMMED}, sandboxes, objects)"  # noqa: S608 - constants
    " SELECT scope, SUM(cpu_millicores), SUM(memory_bytes), SUM(pids), SUM(disk_bytes), SUM(gpus), SUM(seats), 0"
    f" FROM (SELECT namespace AS scope, {_SUMMED}, {_SEAT} AS seats FROM instances WHERE namespace <> ''"
    f" UNION ALL SELECT CASE WHEN host = 'host' THEN '' ELSE '{host_scope('')}' || host END, {_SUMMED}, {_SEAT}"
    " FROM instances"
    f" UNION ALL SELECT '{pool_scope('')}' || pool_uid, {_SUMMED}, 0 FROM instances WHERE pool_uid IS NOT NULL)"
    " AS parts GROUP BY scope"
)
_COUNT_OBJECTS = text(
    f"INSERT INTO totals (scope, {_SUMMED}, sandboxes, objects)"  # noqa: S608 - constants
    " SELECT namespace, 0, 0, 0, 0, 0, 0, COUNT(*) FROM objects WHERE 1 = 1 GROUP BY namespace"
    " ON CONFLICT (scope) DO UPDATE SET objects = excluded.objects"
)


class Moves:
    """Amounts that one transaction adds to each scope, or takes away."""

    def __init__(self) -> None:
        self._by_scope: dict[str, Counter[str]] = {}

    def instance(self, row: Row, sign: int) -> None:
        """Add (1) or take away (-1) what an instance row reserves."""
        found = {name: sign * row[name] for name in _UNITS if name != "sandboxes"}
        seat = {"sandboxes": sign * (row["role"] == SANDBOX)}
        self._move(host_scope(row["host"]), found | seat)
        if row["namespace"]:
            self._move(row["namespace"], found | seat)
        if row["pool_uid"]:
            self._move(pool_scope(row["pool_uid"]), found)

    def object(self, namespace: str, sign: int) -> None:
        """Add (1) or take away (-1) an object."""
        self._move(namespace, {OBJECTS: sign})

    def amount(self, scope: str) -> Amount:
        """Return the sum of the moves of a scope."""
        moved = self._by_scope.get(scope, Counter())
        return Amount(*(moved[name] for name in _UNITS))

    def rows(self) -> list[dict[str, Any]]:
        """Return what has to be added to the stored rows."""
        moved = {scope: each for scope, each in sorted(self._by_scope.items()) if any(each.values())}
        return [{"scope": scope, **{name: each[name] for name in _COLUMNS}} for scope, each in moved.items()]

    def _move(self, scope: str, by: Mapping[str, int]) -> None:
        self._by_scope.setdefault(scope, Counter()).update(by)


def stored(connection: Connection, scopes: Sequence[str]) -> Mapping[str, Row]:
    """Return the rows of these scopes; one without a row holds nothing."""
    return {row["scope"]: dict(row) for row in OF_SCOPES.rows(connection, {"scopes": list(scopes)})}


def amount_of_row(row: Row | None) -> Amount:
    return Amount() if row is None else Amount(*(row[name] for name in _UNITS))


def add(connection: Connection, moves: Moves) -> None:
    """Add the moves to the stored rows. The transaction holds the counter row: no other writer is amid its own."""
    if made := moves.rows():
        _adding_insert(connection.dialect.name).many(connection, made)


def recount(connection: Connection) -> None:
    """Make all rows anew; scopes that hold nothing any more lose theirs. The transaction holds the counter row."""
    connection.execute(delete(totals))
    connection.execute(_SUM_INSTANCES)
    connection.execute(_COUNT_OBJECTS)


@cache
def _adding_insert(dialect: str) -> Quick:
    statement = _INSERT_OF[dialect](totals)
    new = statement.excluded
    adding = statement.on_conflict_do_update(
        index_elements=["scope"], set_={name: totals.c[name] + new[name] for name in _COLUMNS}
    )
    return Quick(adding, ["scope", *_COLUMNS])
