"""Warm pools through services and the loop: claimed, one sandbox each, and never twice."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.planning.action import CreateContainer
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, Crash, FusedStore, LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def apply_pool(house: LoopHarness, name: str = "warm", template: str = "t", **spec: Any) -> None:
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, **spec},
    }
    house.services.apply.apply([Source("test", json.dumps(document))])


def filled(house: LoopHarness, replicas: int = 2, **spec: Any) -> LoopHarness:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"])
    apply_pool(house, warmReplicas=replicas, **spec)
    house.settle()
    return house


def pool(house: LoopHarness, name: str = "warm") -> StoredObject:
    sandbox_pool = house.store.get("SandboxPool", "default", name)
    assert sandbox_pool is not None
    return sandbox_pool


def counts(house: LoopHarness) -> tuple[int, int, int]:
    status = pool(house).status
    return status["replicas"], status["readyReplicas"], status["claimedReplicas"]


def boxes(house: LoopHarness) -> list[str]:
    """Names of all our containers."""
    return sorted(name for names in house.ours().values() for name in names)


def launch(house: LoopHarness, name: str) -> str:
    harness = house.get(name)
    assert harness is not None
    return f"{harness.status['launchType']}: {harness.status['launchReason']}"


def test_a_new_sandbox_takes_a_warm_sandbox_as_it_runs(house: LoopHarness) -> None:
    filled(house)
    before = {entry.id for container in house.engine.observe().containers.values() for entry in container}
    house.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    first = house.reconcile_pass.run()
    assert not [action for group in first.groups for action in group.actions if isinstance(action, CreateContainer)]
    house.settle()
    box = house.get("a")
    assert box is not None
    assert box.status["instanceRef"]["containerID"] in before
    assert box.status["instanceRef"]["name"] == house.container_name("a")
    assert box.status["resources"]["limits"]["memory"] == "256Mi"
    assert launch(house, "a") == "Warm: "
    assert house.condition("a", "Ready") == "True Running"
    assert counts(house) == (2, 2, 1)
    assert len(boxes(house)) == 3


def test_a_claimed_sandbox_is_not_ready_before_its_limits_hold(house: LoopHarness) -> None:
    filled(house)
    house.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    house.reconcile_pass.run()
    assert house.condition("a", "Ready") == "False Claiming"
    house.settle()
    assert house.condition("a", "Ready") == "True Running"


def test_no_two_sandboxes_get_one_sandbox(house: LoopHarness) -> None:
    filled(house)
    for name in ("a", "b", "c"):
        house.refer(name, "t")
    house.settle()
    ids = [house.get(name).status["instanceRef"]["containerID"] for name in ("a", "b", "c")]  # type: ignore[union-attr]
    assert len(set(ids)) == 3
    assert [launch(house, name).split(":")[0] for name in ("a", "b", "c")] == ["Warm", "Warm", "Cold"]
    assert "no member ready" in launch(house, "c")
    assert counts(house) == (2, 2, 2)


def test_a_used_sandbox_is_destroyed_and_never_handed_out_again(house: LoopHarness) -> None:
    filled(house, 1)
    house.refer("a", "t")
    house.settle()
    container_id = house.get("a").status["instanceRef"]["containerID"]  # type: ignore[union-attr]
    house.delete("a")
    house.settle()
    house.refer("b", "t")
    house.settle()
    ids = {entry.id for container in house.engine.observe().containers.values() for entry in container}
    assert container_id not in ids
    assert launch(house, "b") == "Warm: "


def test_an_outdated_member_is_not_claimed(house: LoopHarness) -> None:
    filled(house, 1)
    house.apply_template("t", image=TINY, command=["sleep", "2000000"])
    house.refer("a", "t")
    house.settle()
    assert launch(house, "a").startswith("Cold: ")


def test_a_deleted_pool_takes_its_members_and_leaves_claimed_sandboxes(house: LoopHarness) -> None:
    filled(house, 2)
    house.refer("a", "t")
    house.settle()
    house.delete("warm", "sandboxpool")
    house.settle()
    assert house.store.get("SandboxPool", "default", "warm") is None
    assert boxes(house) == [house.container_name("a")]
    assert house.condition("a", "Ready") == "True Running"


def test_the_maximum_counts_claimed_sandboxes(house: LoopHarness) -> None:
    filled(house, 2, maxReplicas=3)
    house.refer("a", "t")
    house.refer("b", "t")
    house.settle()
    assert counts(house) == (1, 1, 2)
    house.delete("a")
    house.settle()
    assert counts(house) == (2, 2, 1)


def test_require_waits_for_a_place_and_takes_it(house: LoopHarness) -> None:
    filled(house, 1, maxReplicas=1)
    house.refer("a", "t", poolPolicy="Require")
    house.refer("b", "t", poolPolicy="Require")
    house.settle()
    assert launch(house, "a") == "Warm: "
    assert house.condition("b", "Scheduled") == "False PoolExhausted"
    assert "maxReplicas of 1" in next(
        condition["message"]
        for condition in house.get("b").status["conditions"]  # type: ignore[union-attr]
        if condition["type"] == "Scheduled"
    )
    house.delete("a")
    house.settle()
    assert house.condition("b", "Ready") == "True Running"
    assert counts(house) == (0, 0, 1)


def test_a_daemon_that_dies_at_any_step_of_a_claim_leaves_nothing_behind(house: LoopHarness) -> None:
    step = 0
    while True:
        step += 1
        done = [_one_claim(house, f"s{step}{side[0]}", step, after=side == "after") for side in ("before", "after")]
        if not any(done):
            assert step > 7
            return


def _one_claim(house: LoopHarness, name: str, step: int, *, after: bool) -> bool:
    """One claim and refill with a crash at that step; whether there was such a step."""
    filled(house, 2)
    house.fuse.steps, house.fuse.blow_at, house.fuse.after = 0, step, after
    house.services = house.services_over(FusedStore(house.store, house.fuse))
    crashed = False
    try:
        house.refer(name, "t", resources={"limits": {"memory": "256Mi"}})
        house.settle()
    except Crash:
        crashed = True
    house.daemon()
    house.settle()
    if house.get(name) is None:  # it died before its transaction was committed: as if nothing had been said
        house.refer(name, "t", resources={"limits": {"memory": "256Mi"}})
    house.settle()
    assert launch(house, name) == "Warm: "
    assert house.condition(name, "Ready") == "True Running"
    assert counts(house) == (2, 2, 1)
    assert len(boxes(house)) == len(list(house.store.instances())) == 3
    house.delete(name)
    house.settle()
    return crashed


def quota(house: LoopHarness, **hard: Any) -> None:
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "q"},
        "spec": {"hard": hard},
    }
    house.services.apply.apply([Source("test", json.dumps(document))])


def test_no_claim_beyond_the_number_of_sandboxes(house: LoopHarness) -> None:
    quota(house, sandboxes=1)
    filled(house, 2)
    house.refer("a", "t")
    house.refer("b", "t")
    house.settle()
    assert launch(house, "a") == "Warm: "
    assert house.condition("b", "Scheduled") == "False QuotaExceeded"
