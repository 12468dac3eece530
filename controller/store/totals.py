"""Totals by scope: what instances reserve, and the number of objects.

A scope is a namespace, a host (`host_scope`; "" for the default one), or a pool (`pool_scope`). The rows move in the
transaction that moves instances and objects, so a rollback or a crash moves both or none. `recount` makes them anew.
The number of a pool's members (`replicas_scope`) has no row: few pools are bounded by it, and it is counted.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, text

from controller.kinds.planning.instance_record import SANDBOX
from controller.kinds.quota import REPLICAS, RESOURCES, Amount, host_scope, pool_scope, replicas_scope
from controller.store.database import Quick, batches
from controller.store.rows import Row
from controller.store.schema import instances, totals
from controller.store.upsert import insert_of

OBJECTS = "objects"
_UNITS = tuple(resource.unit for resource in RESOURCES)
_COLUMNS = (*_UNITS, OBJECTS)
_MOST_ROWS = 16  # each number of rows is a statement of its own
OF_SCOPES = Quick(select(totals).where(totals.c.scope.in_(bindparam("scopes", expanding=True))))
_REPLICAS = Quick(
    select(instances.c.pool_uid, func.count().label("replicas"))
    .where(instances.c.pool_uid.in_(bindparam("pools", expanding=True)))
    .group_by(instances.c.pool_uid)
)
_Reading = Callable[[Quick, Mapping[str, Any]], Sequence[Mapping[Any, Any]]]
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
        reserved = {name: sign * row[name] for name in _UNITS if name != "sandboxes"}
        seat = {"sandboxes": sign * (row["role"] == SANDBOX)}
        self._move(host_scope(row["host"]), reserved | seat)
        if row["namespace"]:
            self._move(row["namespace"], reserved | seat)
        if row["pool_uid"]:
            self._move(pool_scope(row["pool_uid"]), reserved)
            self._move(replicas_scope(row["pool_uid"]), {"sandboxes": sign})

    def object(self, namespace: str, sign: int) -> None:
        """Add (1) or take away (-1) an object."""
        self._move(namespace, {OBJECTS: sign})

    def amount(self, scope: str) -> Amount:
        """Return the sum of the moves of a scope."""
        amounts = self._by_scope.get(scope, Counter())
        return Amount(*(amounts[name] for name in _UNITS))

    def rows(self) -> list[dict[str, Any]]:
        """Return what has to be added to the stored rows."""
        with_rows = (
            (scope, amounts) for scope, amounts in sorted(self._by_scope.items()) if not scope.startswith(REPLICAS)
        )
        nonzero = {scope: amounts for scope, amounts in with_rows if any(amounts.values())}
        return [{"scope": scope, **{name: amounts[name] for name in _COLUMNS}} for scope, amounts in nonzero.items()]

    def _move(self, scope: str, by: Mapping[str, int]) -> None:
        self._by_scope.setdefault(scope, Counter()).update(by)


def stored_rows(connection: Connection, scopes: Sequence[str]) -> Mapping[str, Row]:
    """Return the rows of these scopes; one without a row holds nothing."""
    return {row["scope"]: dict(row) for row in OF_SCOPES.rows(connection, {"scopes": list(scopes)})}


def reserved_amounts(read: _Reading, scopes: Sequence[str]) -> dict[str, Amount]:
    """Return what these scopes hold, as `read` finds the rows of a statement."""
    pools = [scope.removeprefix(REPLICAS) for scope in scopes if scope.startswith(REPLICAS)]
    with_rows = [scope for scope in scopes if not scope.startswith(REPLICAS)]
    total_rows = {row["scope"]: row for some in batches(with_rows) for row in read(OF_SCOPES, {"scopes": some})}
    # Members of a pool are counted, not summed: a pool has no row of its own.
    counted = {row["pool_uid"]: row for some in batches(pools) for row in read(_REPLICAS, {"pools": some})}
    amounts = {scope: amount_of_row(total_rows.get(scope)) for scope in with_rows}
    return amounts | {
        replicas_scope(pool): Amount(sandboxes=counted[pool]["replicas"] if pool in counted else 0) for pool in pools
    }


def amount_of_row(row: Mapping[Any, Any] | None) -> Amount:
    return Amount() if row is None else Amount(*(row[name] for name in _UNITS))


def add(connection: Connection, moves: Moves, *, tell: bool = False) -> Mapping[str, Row]:
    """Add the moves to the stored rows. The transaction is the only writer meanwhile.

    With `tell`, return the rows as they are now, of a few moved scopes: of more, none.
    """
    move_rows = moves.rows()
    if not move_rows:
        return {}
    if not tell or len(move_rows) > _MOST_ROWS:
        _adding_insert(connection.dialect.name).many(connection, move_rows)
        return {}
    values = {f"{name}_{at}": amount for at, row in enumerate(move_rows) for name, amount in row.items()}
    new_rows = _telling_insert(connection.dialect.name, len(move_rows)).rows(connection, values)
    return {row["scope"]: dict(row) for row in new_rows}


def recount(connection: Connection) -> None:
    """Make all rows anew; scopes that hold nothing any more lose theirs. The transaction holds the counter row."""
    connection.execute(delete(totals))
    connection.execute(_SUM_INSTANCES)
    connection.execute(_COUNT_OBJECTS)


@cache
def _adding_insert(dialect: str) -> Quick:
    return Quick(_adding(insert_of(dialect)(totals)), ["scope", *_COLUMNS])


@cache
def _telling_insert(dialect: str, count: int) -> Quick:
    """Return the statement that adds so many rows at once, and returns what they are then."""
    placeholders: list[dict[str, Any]] = [
        {name: bindparam(f"{name}_{at}") for name in ("scope", *_COLUMNS)} for at in range(count)
    ]
    return Quick(_adding(insert_of(dialect)(totals).values(placeholders)).returning(totals))


def _adding(statement: Any) -> Any:
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["scope"], set_={name: totals.c[name] + new[name] for name in _COLUMNS}
    )
