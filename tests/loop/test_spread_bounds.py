"""Bounds of a pool over several hosts: `maxReplicas` and `quota` hold for all hosts together, whoever is quicker."""

import contextlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.kinds.quota import Amount, amount_of, pool_scope, replicas_scope
from controller.plan.capacity.shortages import admits_growth
from controller.policy.levels.levels import Policy
from controller.ports import Conflict
from controller.ports.scheduler import Liveness
from controller.service.objects.apply import Source
from tests.contract.store_backends import make_backend
from tests.examples import examples
from tests.fakes.scheduler import fake_cluster
from tests.loop.harness import LoopHarness
from tests.loop.test_many_hosts import found, two_hosts
from tests.loop.test_placements import Fleet, change, fleet, made, parent, pool, report, shares

__all__ = ["fleet"]
MEMBER = 64 << 20


def claim(fleet: Fleet, name: str, by: str = "one", **spec: Any) -> str:
    """Return how it was launched, after everything has settled."""
    harness = fleet.hosts.one if by == "one" else fleet.hosts.two
    harness.refer(name, "t", **spec)
    fleet.settle()
    return str(found(harness, name).status.get("launchType", ""))


def whole_uid(fleet: Fleet) -> str:
    obj = fleet.hosts.one.store.get("SandboxPool", "default", "warm")
    assert obj is not None
    return obj.uid


def condition(fleet: Fleet, type_: str) -> str:
    expected = {entry["type"]: entry for entry in parent(fleet)["conditions"]}[type_]
    return f"{expected['status']} {expected['reason']}: {expected.get('message', '')}"


def containers(fleet: Fleet) -> set[str]:
    return {
        name for harness in (fleet.hosts.one, fleet.hosts.two) for names in harness.ours().values() for name in names
    }


def test_warm_and_claimed_of_all_hosts_are_bounded(fleet: Fleet) -> None:
    pool(fleet, 3, maxReplicas=4)
    fleet.settle()
    assert sum(made(fleet)) == 3
    assert [claim(fleet, name, by) for name, by in (("a", "one"), ("b", "two"))] == ["Warm", "Warm"]
    assert (sum(made(fleet)), sum(shares(fleet).values()), len(fleet.scheduler.list())) == (4, 2, 4)
    assert condition(fleet, "Ready") == (
        "True Filled: 2 of 2 members are ready; maxReplicas 4 is reached: 2 warm, 2 claimed"
    )
    assert [claim(fleet, name) for name in ("c", "d")] == ["Warm", "Warm"]
    assert (sum(made(fleet)), sum(shares(fleet).values())) == (4, 0)
    assert parent(fleet)["claimedReplicas"] == 4
    fleet.hosts.two.delete("a")
    fleet.settle()
    assert (sum(made(fleet)), sum(shares(fleet).values())) == (4, 1)
    assert claim(fleet, "e", "two") == "Warm"


def test_a_claim_at_the_bound_costs_no_other_warm_one(fleet: Fleet) -> None:
    pool(fleet, 4, maxReplicas=4)
    fleet.settle()
    before = containers(fleet)
    assert claim(fleet, "a") == "Warm"
    assert len(before & containers(fleet)) == 3, "one has another name now"
    assert sum(made(fleet)) == 4


def test_a_lowered_bound_takes_only_what_is_too_much(fleet: Fleet) -> None:
    pool(fleet, 4, maxReplicas=6)
    fleet.settle()
    claim(fleet, "a")
    before = containers(fleet)
    pool(fleet, 3, maxReplicas=3)
    fleet.settle()
    assert (sum(made(fleet)), sum(shares(fleet).values())) == (3, 2)
    assert containers(fleet) < before


def test_a_required_pool_is_full_over_all_hosts(fleet: Fleet) -> None:
    pool(fleet, 2, maxReplicas=2)
    fleet.settle()
    assert [claim(fleet, name) for name in ("a", "b")] == ["Warm", "Warm"]
    claim(fleet, "c", poolPolicy="Require")
    assert fleet.hosts.one.condition("c", "Ready") == "False PoolExhausted"
    fleet.hosts.one.delete("a")
    fleet.settle()
    assert fleet.hosts.one.condition("c", "Ready") == "True Running"
    assert sum(made(fleet)) == 2


def test_one_that_requires_the_pool_starts_on_any_host(fleet: Fleet) -> None:
    pool(fleet, 1, maxReplicas=2)
    fleet.settle()
    (text,) = {"one", "two"} - shares(fleet).keys()
    assert claim(fleet, "a", poolPolicy="Require", host=text) == "Cold"
    assert (fleet.hosts.one.condition("a", "Ready"), replicas(fleet)) == ("True Running", 2)
    assert found_part(fleet, f"warm-{text}")["claimedReplicas"] == 1


def test_warm_ones_give_way_to_sandboxes_of_other_hosts(fleet: Fleet) -> None:
    pool(fleet, 2, maxReplicas=2)
    fleet.settle()
    assert [claim(fleet, "a", host="two"), made(fleet)] == ["Warm", [1, 1]]
    fleet.hosts.one.refer("b", "t", poolPolicy="Require", host="two")
    fleet.hosts.two.settle(seconds=5)
    assert fleet.hosts.one.condition("b", "Ready") == "False PoolExhausted"
    fleet.keeper.look()
    assert condition(fleet, "Ready").endswith("maxReplicas 2 is reached: 1 warm, 1 claimed, 1 waiting")
    fleet.settle()
    assert (made(fleet), fleet.hosts.one.condition("b", "Ready")) == ([0, 2], "True Running")


def test_a_pools_quota_is_that_of_all_hosts(fleet: Fleet) -> None:
    pool(fleet, 4, quota={"memory": "192Mi"})
    fleet.settle()
    assert sum(made(fleet)) == 3
    assert parent(fleet)["used"] == {"memory": "192Mi"}
    assert "the quota of pool default/warm: memory: 64Mi requested, 192Mi of 192Mi used" in condition(fleet, "Degraded")
    claim(fleet, "a")
    assert claim(fleet, "large", resources={"limits": {"memory": "128Mi"}}) == "Cold", "it can't grow"
    reservations = fleet.hosts.one.store.reservations(pool_scope(whole_uid(fleet)))
    assert reservations[pool_scope(whole_uid(fleet))].memory_bytes == 3 * MEMBER
    pool(fleet, 4, quota={"memory": "320Mi"})
    fleet.settle()
    assert parent(fleet)["used"] == {"memory": "320Mi"}


def test_the_slower_of_two_hosts_plans_again(fleet: Fleet) -> None:
    """Each sees the last place free; the other takes it before this one writes."""
    pool(fleet, 2, maxReplicas=3)
    fleet.settle()
    with fleet.hosts.one.store.transaction() as transaction:
        for stored in transaction.list("SandboxPool"):
            if stored.spec.get("host"):
                transaction.put(
                    replace(stored, spec={**stored.spec, "warmReplicas": 2}, generation=stored.generation + 1)
                )
    assert between(fleet.hosts.one, fleet.hosts.two), "it is refused"
    for harness in (fleet.hosts.one, fleet.hosts.two):
        harness.settle(seconds=5)
        assert replicas(fleet) == 3
    assert sum(made(fleet)) == 3
    ready = found_part(fleet, "warm-one")["conditions"][0]
    assert ready["message"] == "1 of 2 members are ready; its pool is at its maxReplicas over all hosts"


def found_part(fleet: Fleet, name: str) -> Mapping[str, Any]:
    obj = fleet.hosts.one.store.get("SandboxPool", "default", name)
    assert obj is not None
    return obj.status


def between(harness: LoopHarness, other: LoopHarness) -> bool:
    """Run a pass of one host with a whole one of the other before its write; return True if that was refused."""

    def first(after: bool) -> None:
        if not after:
            harness.watch = lambda _after: None
            with contextlib.suppress(Conflict):
                other.run_pass()

    harness.watch = first
    try:
        harness.run_pass()
    except Conflict:
        return True
    finally:
        harness.watch = lambda _after: None
    return False


def replicas(fleet: Fleet) -> int:
    scope = replicas_scope(whole_uid(fleet))
    return fleet.hosts.one.store.reservations(scope)[scope].sandboxes


def test_a_preview_counts_what_other_hosts_hold(fleet: Fleet) -> None:
    """A diff asks if a claimed member may grow: the namespace's quota leaves 64 MiB, then the other host takes them."""
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Quota", "metadata": {"name": "q"}}
    body = {"spec": {"hard": {"memory": "192Mi"}}}
    fleet.hosts.one.services.apply.apply([Source("test", json.dumps(document | body))])
    pool(fleet, 2)
    fleet.settle()
    assert grows(fleet.hosts.one)
    fleet.hosts.two.apply("a", host="two", template={"resources": {"limits": {"memory": "64Mi"}}})
    fleet.settle()
    assert not grows(fleet.hosts.one)


def grows(harness: LoopHarness) -> bool:
    """Return True if a warm member here may reserve twice as much."""
    last = harness.reconcile_pass.last
    assert last is not None
    [(piece, member)] = [
        (last.desired.pools[instance.parent_uid], instance)
        for instance in last.instances.values()
        if instance.role == "warm"
    ]
    return admits_growth(last, piece, member, replace(member.reserves, memory_bytes=2 * MEMBER))


_STEPS = st.lists(
    st.sampled_from(
        [
            *(("claim", name) for name in "abcdef"),
            *(("require", name) for name in "abc"),
            *(("large", name) for name in "ab"),
            *(("delete", name) for name in "abcdef"),
            *(("size", f"{warm}/{most}") for warm, most in ((1, 1), (3, 3), (2, 5), (5, 5), (4, 0))),
            *((act, name) for act in ("down", "up", "drain", "uncordon", "between") for name in ("one", "two")),
            *(("settle", ""),) * 3,
        ]
    ),
    max_size=14,
)


def _do(fleet: Fleet, act: str, name: str, most: list[int]) -> None:
    harnesses = {"one": fleet.hosts.one, "two": fleet.hosts.two}
    harness = harnesses["one" if name in "ace" else "two"]
    with contextlib.suppress(Conflict):
        match act:
            case "claim" | "require" | "large" if harness.get(name) is None:
                document = {"resources": {"limits": {"memory": "128Mi"}}} if act == "large" else {}
                harness.refer(name, "t", **document, **({"poolPolicy": "Require"} if act == "require" else {}))
            case "delete" if harness.get(name) is not None:
                harness.delete(name)
            case "size":
                warm, most[0] = (int(entry) for entry in name.split("/"))
                bounds = {"maxReplicas": most[0]} if most[0] else {}
                pool(fleet, warm, quota={"memory": f"{most[1]}Mi"}, **bounds)
            case "down" | "up":
                fleet.scheduler.set_liveness(name, Liveness.UP if act == "up" else Liveness.DOWN)
            case "drain" | "uncordon":
                change(harnesses["one"], name, schedulable=act == "uncordon", drained=act == "drain")
            case "between":
                between(harnesses[name], harnesses["two" if name == "one" else "one"])
            case "settle":
                fleet.settle()


@settings(max_examples=examples(25), deadline=None)
@given(steps=_STEPS)
def test_no_history_over_two_hosts_exceeds_a_pools_bounds(steps: list[tuple[str, str]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        make_backend("sqlite", Path(folder)) as backend,
        two_hosts(backend, (Policy(scheduler="swarm"),) * 2) as hosts,
    ):
        for harness in (hosts.one, hosts.two):
            report(harness)
        fleet = Fleet(hosts, fake_cluster(("one", "two")))
        most = [3, 320]
        pool(fleet, 3, maxReplicas=3, quota={"memory": "320Mi"})
        fleet.settle()
        before = _held(fleet)
        for act, name in steps:
            _do(fleet, act, name, most)
            fleet.keeper.look()
            now = _held(fleet)
            bound = most[0] or 1000
            assert now.sandboxes <= max(bound, before.sandboxes), "a lowered bound takes nothing, and adds nothing"
            assert now.memory_bytes <= most[1] << 20
            before = now


def _held(fleet: Fleet) -> Amount:
    """Sum and number of the pool's members and claimed sandboxes, by the rows themselves."""
    mine = [instance for instance in fleet.hosts.one.store.instances() if instance.state.claim.pool == whole_uid(fleet)]
    total = Amount(sandboxes=len(mine))
    for entry in mine:
        total += amount_of(entry.reserves)
    return total
