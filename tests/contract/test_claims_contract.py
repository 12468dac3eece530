"""Claims by eight processes at once: no member goes to two, and no quota gives one too many; on both stores.

PADDOCK_TEST_CLAIMS says how many claims there are to be; by default few enough
for every run; 10,000 take a minute or two a store.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.claim_backends import HELD, WHOLE, fill, fill_hosts, move_in, move_out
from tests.contract.store_backends import BACKENDS, Backend, make_backend
from tests.instance_states import changed_state

CLAIMS = int(os.environ.get("PADDOCK_TEST_CLAIMS", "200"))
# The machine may have other work: what is slow is not wrong.
pytestmark = pytest.mark.timeout(1800)
PROCESSES, A_ROUND, TOO_MANY, MOST = 8, 100, 9, 40


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path) as created:
        yield created


def test_no_member_goes_to_two_and_no_quota_gives_one_too_many(backend: Backend) -> None:
    store = backend.store(wait_seconds=60)
    move_in(store, {"sandboxes": A_ROUND})
    children = [backend.child("claim_all", f"child{index}", CLAIMS // A_ROUND) for index in range(PROCESSES)]
    for round_ in range(CLAIMS // A_ROUND):
        fill(store, round_, A_ROUND + TOO_MANY)
        for child in children:
            assert child.says() == "ready"
        for entry in children:
            entry.go()
        won = [uid for one_child in children for uid in one_child.says()]
        assert len(won) == len(set(won)) == A_ROUND, "as many as the quota allows, each by one"
        assert {stored.uid for stored in store.list("Sandbox")[0]} == set(won)
        rows = store.instances()
        assert sorted(row.role for row in rows) == ["sandbox"] * A_ROUND + ["warm"] * TOO_MANY
        instances = [row for row in rows if row.role == "sandbox"]
        assert {instance.reserves.memory_bytes for instance in instances} == {2 * HELD.memory_bytes}, (
            "reserved along with it"
        )
        with store.transaction() as transaction:
            assert transaction.reservations("default")["default"].sandboxes == A_ROUND
        move_out(store)


def test_ready_members_of_other_hosts_are_taken_oldest_first(backend: Backend) -> None:
    store = backend.store()
    move_in(store, {})
    uids = fill_hosts(store, ("a", "b", "c", "b"))
    fill_hosts(store, ("b",), "other")
    with store.transaction() as transaction:
        first = transaction.ready_member("p-uid", "k", besides="a")
        assert first is not None
        assert (first.uid, first.host, first.state.claim.ready_key) == (uids[1], "b", "k")
        transaction.put_instance(replace(first, role="sandbox"))
        second = transaction.ready_member("p-uid", "k", besides="a")
        assert second is not None
        assert second.uid == uids[2]
        transaction.retire([second])
        assert transaction.ready_member("p-uid", "k", besides="b") == store.instances([uids[0]])[0]
    with store.transaction() as transaction:
        ready_member = transaction.ready_member("p-uid", "k", besides="a")
        assert ready_member is not None
        assert ready_member.uid == uids[3]
        transaction.put_instance(replace(ready_member, state=changed_state(ready_member.state, ready_key="")))
    with store.transaction() as transaction:
        for pool, key in (("p-uid", "k"), ("p-uid", ""), ("q-uid", "k"), ("p-uid", "unknown")):
            assert transaction.ready_member(pool, key, besides="a") is None
        assert transaction.ready_member("p-uid", "other", besides="a") is not None


def test_a_ready_member_of_one_host_alone(backend: Backend) -> None:
    store = backend.store()
    move_in(store, {})
    uids = fill_hosts(store, ("b", "c"))
    with store.transaction() as transaction:
        ready_members = [transaction.ready_member("p-uid", "k", besides="a", on=host) for host in ("", "b", "c", "d")]
        assert [ready_member and ready_member.uid for ready_member in ready_members] == [uids[0], *uids, None]


@pytest.mark.postgres
def test_no_ready_member_of_a_lost_host_is_handed_out(tmp_path: Path) -> None:
    with make_backend("postgres", tmp_path) as backend:
        store = backend.store()
        move_in(store, {})
        uids = fill_hosts(store, ("b", "host", "c"))
        leases = [backend.store().lease(name) for name in ("host/b", "host/host", "host/c")]
        assert [store_lease.acquire() for store_lease in leases] == [""] * 3
        observed = []
        for lease in leases:
            with store.transaction() as transaction:
                observed.append(transaction.ready_member("p-uid", "k", besides="a"))
            lease.release()
        assert [instance and instance.uid for instance in observed] == uids
        with store.transaction() as transaction:
            assert transaction.ready_member("p-uid", "k", besides="a") is None


def test_no_ready_member_goes_to_two_hosts(backend: Backend) -> None:
    store = backend.store(wait_seconds=60)
    move_in(store, {})
    uids = fill_hosts(store, "abcdefgh" * 8)
    children = [backend.child("claim_elsewhere", host) for host in "abcdefgh"]
    for child in children:
        assert child.says() == "ready"
    for entry in children:
        entry.go()
    won = [uid for one_child in children for uid in one_child.says()]
    assert sorted(won) == uids


def test_hosts_together_never_add_a_member_too_many(backend: Backend) -> None:
    store = backend.store(wait_seconds=60)
    move_in(store, {}, of_whole={})
    fill(store, 0, 3, WHOLE)
    children = [backend.child("add_members", host, MOST) for host in "abcdefgh"]
    for child in children:
        assert child.says() == "ready"
    for entry in children:
        entry.go()
    assert sum(one_child.says() for one_child in children) == MOST - 3
    assert len(store.instances()) == MOST


@pytest.mark.parametrize("whole", [False, True], ids=["namespace", "pool"])
def test_the_memory_for_the_last_claim_is_given_once(backend: Backend, whole: bool) -> None:
    """Each claims a member and asks for as much again; there is memory for one of them to grow."""
    store = backend.store(wait_seconds=60)
    most = {"memory": HELD.memory_bytes * (PROCESSES + 1)}
    move_in(store, {} if whole else most, of_whole=most if whole else None)
    fill(store, 0, PROCESSES, WHOLE if whole else "p-uid")
    children = [backend.child("claim_all", f"child{index}", 1) for index in range(PROCESSES)]
    for child in children:
        assert child.says() == "ready"
    for entry in children:
        entry.go()
    assert sum(len(one_child.says()) for one_child in children) == 1
    assert sorted(instance.role for instance in store.instances()) == ["sandbox"] + ["warm"] * (PROCESSES - 1)
