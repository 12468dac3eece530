"""Figures of the store, each beside bare SQLAlchemy writing or reading the same rows in the same run."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, bindparam, insert, select, update

from controller.kinds.meta import StoredObject
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.store import rows
from controller.store.database import Database
from controller.store.schema import changes, meta, objects
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, instance, make_backend, new_sandbox
from tests.contract.store_backends import insert as put

pytestmark = pytest.mark.bench
COUNT, ROUNDS = 1000, 5
SPEC = {
    "template": {"image": "paddock/python:1", "command": ["sleep", "infinity"], "env": [{"name": "A", "value": "b"}]},
    "resources": {"limits": {"cpu": "500m", "memory": "512Mi", "pids": 128}},
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


def many(prefix: str) -> list[StoredObject]:
    return [new_sandbox(f"{prefix}-{number:05}", spec=SPEC, last_applied=SPEC) for number in range(COUNT)]


def status(round_: int) -> dict[str, object]:
    arguments = ("Ready", "Accepted", "Scheduled", "Provisioned", "Resized", "Secured")
    conditions = [{"type": word, "status": "True", "reason": "AsAsked", "message": "m" * 40} for word in arguments]
    return {"observedGeneration": round_, "conditions": conditions}


def best(action: Callable[[int], object]) -> float:
    """Seconds of the quickest of some rounds."""
    spent = []
    for round_ in range(ROUNDS):
        start = time.perf_counter()
        action(round_)
        spent.append(time.perf_counter() - start)
    return min(spent)


def bare_log(connection: Connection, values: list[dict[str, object]], type_: str) -> None:
    """Write what any store with a watch log writes besides the objects themselves."""
    revision = connection.execute(select(meta.c.revision).with_for_update()).scalar_one() + 1
    log = [
        {"revision": revision, "position": position, "kind": "Sandbox", "uid": row["uid"], "type": type_}
        | {"object": rows.packed_change(row)}
        for position, row in enumerate(values)
    ]
    connection.execute(insert(changes), log)
    connection.execute(update(meta).values(revision=revision))


def bare_insert(database: Database, values: list[dict[str, object]]) -> None:
    with database.writing() as connection:
        connection.execute(insert(objects), values)
        bare_log(connection, values, "ADDED")


def bare_update(database: Database, values: list[dict[str, object]], round_: int) -> None:
    text = rows.to_text(status(round_))
    statement = update(objects).where(objects.c.uid == bindparam("of")).values(status=bindparam("to"))
    with database.writing() as connection:
        connection.execute(statement, [{"of": row["uid"], "to": text} for row in values])
        bare_log(connection, [{**row, "status": text} for row in values], "MODIFIED")


def bare_list(database: Database) -> int:
    with database.reading() as connection:
        return len(connection.execute(select(objects)).all())


def show(backend: Backend, what: str, ours: float, bare: float) -> None:
    print(f"\n{backend.url.split(':')[0]}: {what}: {ours * 1000:.2f} ms, {ours / bare:.2f} times bare SQLAlchemy")


def test_apply_a_thousand(backend: Backend) -> None:
    store = backend.store()

    def apply(round_: int) -> None:
        with store.transaction() as transaction:
            transaction.list("Sandbox", f"ours{round_}")
            for stored in many("ours"):
                transaction.put(replace(stored, namespace=f"ours{round_}", uid=f"{stored.uid}-{round_}"))

    ours = best(apply)
    with backend.database() as database:
        bare = best(lambda round_: bare_insert(database, [rows.object_row(stored) for stored in many(f"bare{round_}")]))
    show(backend, f"apply {COUNT} new objects", ours, bare)
    assert ours / bare < 3


def test_record_a_thousand_statuses(backend: Backend) -> None:
    store = backend.store()
    stored = put(store, *many("box"))
    ours = best(
        lambda round_: store.record(Writes(statuses=tuple(StatusWrite(entry.ref, status(round_)) for entry in stored)))
    )
    writes = Writes(statuses=tuple(StatusWrite(entry.ref, status(ROUNDS - 1)) for entry in stored))
    unchanged = best(lambda _: store.record(writes))
    values = [rows.object_row(entry) for entry in stored]
    with backend.database() as database:
        bare = best(lambda round_: bare_update(database, values, round_ + ROUNDS))
    show(backend, f"record {COUNT} statuses", ours, bare)
    show(backend, f"record {COUNT} unchanged statuses", unchanged, bare)
    assert ours < 1.0


def test_record_a_thousand_instances(backend: Backend) -> None:
    store = backend.store()
    instances = {stored.uid: instance(stored) for stored in put(store, *many("box"))}

    def again(_: int) -> None:
        instances.update(store.record(Writes(instances=tuple(instances.values()))))

    print(f"\n{backend.url.split(':')[0]}: record {COUNT} instances: {best(again) * 1000:.1f} ms")


def test_list_a_thousand(backend: Backend) -> None:
    store = backend.store()
    put(store, *many("box"))
    ours = best(lambda _: store.list("Sandbox"))
    with backend.database() as database:
        bare = best(lambda _: bare_list(database))
    show(backend, f"list {COUNT}", ours, bare)
    assert ours < 0.3


def test_single_commits(backend: Backend) -> None:
    store = backend.store()
    single = 200

    def ours_round(round_: int) -> None:
        for number in range(single):
            put(store, new_sandbox(f"one-{round_}-{number}", spec=SPEC))

    def bare_round(database: Database, round_: int) -> None:
        for number in range(single):
            bare_insert(database, [rows.object_row(new_sandbox(f"bare-{round_}-{number}", spec=SPEC))])

    ours = best(ours_round) / single
    with backend.database() as database:
        bare = best(lambda round_: bare_round(database, round_)) / single
    show(backend, f"one commit ({1 / ours:.0f}/s)", ours, bare)
    print(f"\n{backend.url.split(':')[0]}: one get: {best(lambda _: gets(store, single)) / single * 1000:.2f} ms")


def gets(store: SqlStore, count: int) -> None:
    for _ in range(count):
        store.get("Sandbox", "default", "one-0-0")


def test_following(backend: Backend) -> None:
    store = backend.store()
    put(store, *many("box"))
    observed = best(lambda _: store.changes(0))
    idle = best(lambda _: store.changes(1))
    print(f"\n{backend.url.split(':')[0]}: follow {COUNT} changes {observed * 1000:.1f} ms, none {idle * 1000:.2f} ms")
