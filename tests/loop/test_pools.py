"""Warm pools through the real middle of the house: filled, claimed, refilled, replaced, given up; on both stores."""

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
    made = LoopHarness(world.store())
    yield made
    made.close()


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
    found = house.store.get("SandboxPool", "default", name)
    assert found is not None
    return found


def counts(house: LoopHarness) -> tuple[int, int, int]:
    status = pool(house).status
    return status["replicas"], status["readyReplicas"], status["claimedReplicas"]


def boxes(house: LoopHarness) -> list[str]:
    """Names of all our containers."""
    return sorted(name for names in house.ours().values() for name in names)


def launch(house: LoopHarness, name: str) -> str:
    found = house.get(name)
    assert found is not None
    return f"{found.status['launchType']}: {found.status['launchReason']}"


def test_a_pool_is_filled_and_says_so(house: LoopHarness) -> None:
    filled(house, 3)
    assert counts(house) == (3, 3, 0)
    assert len(boxes(house)) == 3
    assert all(name.startswith("pdk-warm-") for name in boxes(house))
    [ready] = [each for each in pool(house).status["conditions"] if each["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("True", "Filled")


def test_a_new_sandbox_takes_a_warm_sandbox_as_it_runs(house: LoopHarness) -> None:
    filled(house)
    before = {each.id for seen in house.engine.observe().containers.values() for each in seen}
    house.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    first = house.turn.run()
    assert not [each for group in first.groups for each in group.actions if isinstance(each, CreateContainer)]
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
    house.turn.run()
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
    used = house.get("a").status["instanceRef"]["containerID"]  # type: ignore[union-attr]
    house.delete("a")
    house.settle()
    house.refer("b", "t")
    house.settle()
    left = {each.id for seen in house.engine.observe().containers.values() for each in seen}
    assert used not in left
    assert launch(house, "b") == "Warm: "


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"poolPolicy": "Never"}, "poolPolicy is Never"),
        ({"templateRef": {"name": "other"}}, "there is no SandboxPool of template `other`"),
    ],
)
def test_a_cold_start_says_why(house: LoopHarness, spec: dict[str, Any], why: str) -> None:
    filled(house)
    house.apply_template("other", image=TINY, command=["sleep", "1000000"])
    asked = dict(spec)
    house.refer("a", asked.pop("templateRef", {"name": "t"})["name"], **asked)
    house.settle()
    assert launch(house, "a") == f"Cold: {why}"
    assert counts(house)[2] == 0


def test_scaled_down_and_to_zero(house: LoopHarness) -> None:
    filled(house, 3)
    apply_pool(house, warmReplicas=1)
    house.settle()
    assert counts(house) == (1, 1, 0)
    assert len(boxes(house)) == 1
    apply_pool(house, warmReplicas=0)
    house.settle()
    assert boxes(house) == []
    assert list(house.store.instances()) == []


def test_a_changed_template_replaces_members_without_running_dry(house: LoopHarness) -> None:
    filled(house, 2)
    old = set(boxes(house))
    house.apply_template("t", image=TINY, command=["sleep", "2000000"])
    least = 2
    for _ in range(40):
        decided = house.run_pass()
        running = [each for seen in house.engine.observe().containers.values() for each in seen if each.pid]
        least = min(least, len(running))
        if not (decided.groups or decided.writes or house.has_results()):
            if decided.next_wake is None or decided.next_wake > house.clock.now() + 60:
                break
            house.clock.advance(decided.next_wake - house.clock.now())
    assert least == 2
    assert counts(house) == (2, 2, 0)
    assert not old & set(boxes(house))


def test_an_outdated_member_is_not_claimed(house: LoopHarness) -> None:
    filled(house, 1)
    house.apply_template("t", image=TINY, command=["sleep", "2000000"])
    house.refer("a", "t")
    house.settle()
    assert launch(house, "a").startswith("Cold: ")


def test_aged_members_are_replaced(house: LoopHarness) -> None:
    filled(house, 1, maxAgeSeconds=60)
    [old] = boxes(house)
    house.clock.advance(61)
    house.run_pass()
    house.run_pass()
    for _ in range(20):
        house.run_pass()
    house.settle(seconds=30)
    assert old not in boxes(house)
    assert counts(house) == (1, 1, 0)


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
        each["message"]
        for each in house.get("b").status["conditions"]  # type: ignore[union-attr]
        if each["type"] == "Scheduled"
    )
    house.delete("a")
    house.settle()
    assert house.condition("b", "Ready") == "True Running"
    assert counts(house) == (0, 0, 1)


def test_warm_members_make_room_for_what_requires_the_pool(house: LoopHarness) -> None:
    filled(house, 2, maxReplicas=2)
    for each in house.engine.observe().containers.values():  # none is ready: all are frozen by hand
        house.engine.pause(each[0].name)
    house.run_pass()
    house.refer("a", "t", poolPolicy="Require")
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert counts(house)[2] == 1
    assert len(boxes(house)) == 2


def test_a_member_that_fails_is_shown(house: LoopHarness) -> None:
    house.apply_template("t", image="missing:1")
    apply_pool(house)
    for _ in range(6):
        house.run_pass()
    conditions = {each["type"]: each for each in pool(house).status["conditions"]}
    assert conditions["Degraded"]["status"] == "True"
    assert "missing:1" in conditions["Degraded"]["message"]
    assert conditions["Ready"]["reason"] == "Filling"


def test_a_pool_without_a_template_says_so(house: LoopHarness) -> None:
    apply_pool(house, template="none")
    house.settle()
    conditions = {each["type"]: each for each in pool(house).status["conditions"]}
    assert conditions["Accepted"]["status"] == "False"
    assert "there is no SandboxTemplate `none`" in conditions["Accepted"]["message"]


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


def test_warm_members_give_way_to_a_sandbox_that_waits_for_room(house: LoopHarness) -> None:
    quota(house, memory="1Gi")
    filled(house, 2)  # 512Mi each
    house.apply_template("own", image=TINY, command=["sleep", "1000000"])
    house.refer("a", "own")
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert counts(house)[1] == 1
    assert len(boxes(house)) == 2
    house.delete("a")
    house.settle()
    assert counts(house) == (2, 2, 0)


def test_members_wait_for_room_and_say_so(house: LoopHarness) -> None:
    quota(house, memory="512Mi")
    filled(house, 2)
    assert len(boxes(house)) == 1
    conditions = {each["type"]: each for each in pool(house).status["conditions"]}
    assert conditions["Degraded"]["status"] == "True"
    assert "QuotaExceeded" in conditions["Degraded"]["message"]


def test_no_claim_beyond_the_number_of_sandboxes(house: LoopHarness) -> None:
    quota(house, sandboxes=1)
    filled(house, 2)
    house.refer("a", "t")
    house.refer("b", "t")
    house.settle()
    assert launch(house, "a") == "Warm: "
    assert house.condition("b", "Scheduled") == "False QuotaExceeded"
