"""Totals by scope equal the sums over what is stored, whatever was written, refused or rolled back before."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from controller.kinds.meta import ObjectRef, StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Deletion, Writes
from controller.kinds.quota import Amount, Ceiling, amount_of, host_scope, pool_scope, replicas_scope
from controller.kinds.runtime.container import Limits
from controller.ports import Conflict
from controller.store import migrate
from controller.store.schema import objects
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import (
    BACKENDS,
    Backend,
    both_stores,
    event,
    insert,
    instance,
    make_backend,
    new_sandbox,
)
from tests.examples import examples
from tests.instance_states import instance_state

NAMESPACES, NAMES, POOLS = ("default", "team"), ("a", "b", "c"), ("", "p", "q")
HOSTS = ("host", "b")
FINALIZER = "paddock/containers"
AT = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
LIMITS = st.builds(
    Limits, *(st.integers(0, 1 << 40) for _ in range(3)), disk_bytes=st.integers(0, 9), gpus=st.integers(0, 2)
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "instance", "record", "retire", "remove", "finalize", "delete", "ceiling", "prune")),
        AT,
        st.sampled_from(("sandbox", "warm", "refused")),
        st.sampled_from(POOLS),
        LIMITS,
        st.sampled_from(HOSTS),
        st.booleans(),
    ),
    max_size=14,
)


class _Undone(Exception):
    """Rolls a transaction back."""


@pytest.fixture(params=BACKENDS, scope="module")
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    with make_backend(request.param, tmp_path_factory.mktemp("totals")) as backend:
        yield backend.store()


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_totals_equal_the_sums_over_rows(store: SqlStore, steps: list[tuple[Any, ...]]) -> None:
    _empty(store)
    for step in steps:
        with suppress(_Undone, Conflict):
            _take(store, *step)
        assert _held(store) == _summed(store)
        assert _counted(store) == Counter(stored.namespace for stored in store.list("Sandbox")[0])
    _empty(store)
    assert set(_held(store).values()) == {Amount()}


def test_a_conflict_leaves_the_totals_alone(store: SqlStore) -> None:
    _empty(store)
    [stored] = insert(store, new_sandbox())
    store.record(Writes(instances=(instance(stored),)))
    before = _held(store)
    with pytest.raises(Conflict):
        store.record(Writes(instances=(instance(stored, reserves=Limits(1, 2, 3), version=7),)))
    beyond = replace(store.instances()[0], reserves=Limits(9000, 2, 3))
    with pytest.raises(Conflict, match="more is reserved"):
        store.record(Writes(instances=(beyond,), ceilings=(Ceiling("default", Amount(8000, 1 << 40, 99, 9)),)))
    assert _held(store) == before == _summed(store)


def test_a_ceiling_is_that_of_one_host(store: SqlStore) -> None:
    _empty(store)
    created = insert(store, new_sandbox("a"), new_sandbox("b"), new_sandbox("c"))
    present, there, further = (instance(stored, reserves=Limits(600, 7, 9)) for stored in created)
    ceiling = Ceiling(host_scope("b"), Amount(1000, 100, 100, 5))
    store.record(Writes(instances=(present, replace(there, host="b")), ceilings=(ceiling,)))
    with pytest.raises(Conflict, match="host/b: more is reserved"):
        store.record(Writes(instances=(replace(further, host="b"),), ceilings=(ceiling,)))
    store.record(Writes(instances=(further,), ceilings=(ceiling,)))
    reserved = _held(store)
    assert (reserved[""].cpu_millicores, reserved["host/b"].cpu_millicores) == (1200, 600)
    assert reserved["default"].cpu_millicores == 1800, "a namespace's are those of all hosts"


def test_a_ceiling_is_the_number_of_a_pools_members(store: SqlStore) -> None:
    _empty(store)
    rows = [
        _row(stored, (), "warm", "p", Limits(0, 0, 0))
        for stored in insert(store, new_sandbox("a"), new_sandbox("b"), new_sandbox("c"))
    ]
    two = Ceiling(replicas_scope("p"), Amount(sandboxes=2))
    store.record(
        Writes(
            instances=tuple(replace(row, host=host) for row, host in zip(rows, HOSTS, strict=False)), ceilings=(two,)
        )
    )
    with pytest.raises(Conflict, match="replicas/p: more is reserved"):
        store.record(Writes(instances=(rows[2],), ceilings=(two,)))
    assert _held(store)["replicas/p"] == Amount(sandboxes=2)


@both_stores
def test_rows_removed_behind_the_store_hold_nothing_for_long(backend: Backend) -> None:
    store = backend.store()
    created = insert(store, new_sandbox("a"), new_sandbox("b"))
    store.record(Writes(instances=tuple(_row(stored, (), "sandbox", "p", Limits(600, 7, 9)) for stored in created)))
    with backend.database() as database, database.writing() as connection:
        connection.execute(delete(objects).where(objects.c.name == "a"))
    instances = store.instances()
    ceiling = Ceiling("default", Amount(1000, 100, 100, 1))
    store.record(Writes(instances=(replace(instances[0], reserves=Limits(900, 7, 9)),), ceilings=(ceiling,)))
    assert _held(store) == _summed(store)
    with backend.database() as database, database.writing() as connection:
        connection.execute(delete(objects))
    store.prune(keep_changes=5, events_before=0.0)
    assert set(_held(store).values()) == {Amount()}


@both_stores
def test_a_store_of_before_totals_gets_them(backend: Backend) -> None:
    store = backend.store()
    created = insert(store, *(new_sandbox(name, namespace) for namespace in NAMESPACES for name in NAMES))
    rows = [
        _row(stored, (), "sandbox" if number % 2 else "warm", POOLS[number % 3], Limits(number, 7, 9))
        for number, stored in enumerate(created)
    ]
    store.record(Writes(instances=tuple(rows), events=(event(created[0]),)))
    before = (_held(store), _counted(store), store.changes(0), store.events())
    store.close()
    with backend.database() as database, database.migrating() as connection:
        migrate.downgrade(connection, "0006")
    store.open()
    assert (_held(store), _counted(store), store.changes(0), store.events()) == before
    assert before[0] == _summed(store)


def _take(
    store: SqlStore, what: str, at: tuple[str, str], role: str, pool: str, limits: Limits, host: str, undone: bool
) -> None:
    namespace, name = at
    obj = store.get("Sandbox", namespace, name)
    if what == "prune":
        store.prune(keep_changes=5, events_before=0.0)
        return
    if obj is None:
        obj = new_sandbox(name, namespace, finalizers=(FINALIZER,))
    instances = store.instances([obj.uid])
    if what in ("record", "finalize", "delete", "ceiling"):
        store.record(
            _writes(what, obj.ref, obj.generation, replace(_row(obj, instances, role, pool, limits), host=host))
        )
        return
    with store.transaction() as transaction:
        if what == "put":
            transaction.put(replace(obj, labels={"at": name}))
        elif what == "instance":
            transaction.put(obj)
            transaction.put_instance(_row(obj, instances, "warm", "q", limits))
            transaction.put_instance(replace(_row(obj, instances, role, pool, limits), host=host))
        elif what == "retire":
            transaction.retire(instances)
        else:
            transaction.remove(obj)
        before = transaction.reservations(namespace, "", host_scope("b"), replicas_scope("q"))
        assert before.keys() == {namespace, "", "host/b", "replicas/q"}
        if undone:
            raise _Undone


def _writes(what: str, ref: ObjectRef, generation: int, row: Instance) -> Writes:
    if what == "finalize":
        return Writes(finalized=((ref, FINALIZER),), instances=(row,))
    if what == "delete":
        return Writes(deletions=(Deletion(ref, generation, 5.0),))
    ceilings = (Ceiling("default", Amount(1 << 30, 1 << 30, 1 << 30, 2, 9, 9)),) if what == "ceiling" else ()
    return Writes(instances=(row,), ceilings=ceilings)


def _row(obj: StoredObject, held: Sequence[Instance], role: str, pool: str, limits: Limits) -> Instance:
    version = held[0].version if held else 0
    created = instance(obj, role=role, reserves=limits, version=version, state=instance_state(pool=pool))
    return replace(created, name=f"pdk-{obj.uid}")


def _summed(store: SqlStore) -> Mapping[str, Amount]:
    document: dict[str, Amount] = defaultdict(Amount, {scope: Amount() for scope in _scopes()})
    for entry in store.instances():
        mine = amount_of(entry.reserves, int(entry.role == "sandbox"))
        for scope in (entry.namespace, host_scope(entry.host)):
            document[scope] += mine
        if entry.state.claim.pool:
            document[pool_scope(entry.state.claim.pool)] += replace(mine, sandboxes=0)
            document[replicas_scope(entry.state.claim.pool)] += Amount(sandboxes=1)
    return document


def _held(store: SqlStore) -> Mapping[str, Amount]:
    with store.transaction() as transaction:
        return transaction.reservations(*_scopes())


def _counted(store: SqlStore) -> Counter[str]:
    with store.transaction() as transaction:
        return +Counter({namespace: transaction.count(namespace) for namespace in NAMESPACES})


def _scopes() -> list[str]:
    pools = [pool for pool in POOLS if pool]
    return [*NAMESPACES, *map(host_scope, HOSTS), *map(pool_scope, pools), *map(replicas_scope, pools)]


def _empty(store: SqlStore) -> None:
    with store.transaction() as transaction:
        for stored in transaction.list("Sandbox"):
            transaction.remove(stored)
