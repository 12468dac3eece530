"""Several pools on one host: filled by priority, each within a quota of its own."""

from typing import Any

from controller.kinds.planning.action import PullImage
from controller.kinds.planning.plan import Plan
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, boxes, filled, house, launch, pool, quota

__all__ = ["house"]


def ready(house: LoopHarness, name: str) -> int:
    return int(pool(house, name).status["readyReplicas"])


def template(house: LoopHarness, name: str = "t", memory: str = "256Mi", **spec: Any) -> None:
    limits = {"limits": {"memory": memory, "cpu": "500m", "pids": 16}}
    house.apply_template(name, image=TINY, command=["sleep", "1000000"], resources=limits, **spec)


def test_the_pool_of_higher_priority_is_filled_first(house: LoopHarness) -> None:
    quota(house, memory="768Mi")
    template(house)
    apply_pool(house, "low", warmReplicas=2)
    apply_pool(house, "high", warmReplicas=2, priority=5)
    house.settle()
    assert (ready(house, "high"), ready(house, "low")) == (2, 1)


def test_a_pool_of_lower_priority_gives_way_and_equals_do_not(house: LoopHarness) -> None:
    quota(house, memory="768Mi")
    template(house)
    apply_pool(house, "low", warmReplicas=3)
    house.settle()
    apply_pool(house, "equal", warmReplicas=1)
    house.settle()
    assert (ready(house, "low"), ready(house, "equal")) == (3, 0)
    apply_pool(house, "high", warmReplicas=2, priority=5)
    house.settle()
    assert (ready(house, "low"), ready(house, "high")) == (1, 2)


def test_one_member_of_the_least_pool_goes_for_one_sandbox(house: LoopHarness) -> None:
    quota(house, memory="1Gi")
    template(house)
    apply_pool(house, "low", warmReplicas=2)
    apply_pool(house, "high", warmReplicas=2, priority=5)
    house.settle()
    house.apply("a", resources={"limits": {"memory": "256Mi"}})
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert (ready(house, "low"), ready(house, "high")) == (1, 2)


def test_a_pool_keeps_within_its_own_quota(house: LoopHarness) -> None:
    template(house)
    apply_pool(house, warmReplicas=3, quota={"memory": "600Mi"})
    house.settle()
    assert ready(house, "warm") == 2
    degraded = {condition["type"]: condition for condition in pool(house).status["conditions"]}["Degraded"]
    assert "the quota of pool default/warm: memory: 256Mi requested, 512Mi of 600Mi used" in degraded["message"]
    house.refer("a", "t")
    house.settle()
    assert (ready(house, "warm"), launch(house, "a")) == (1, "Warm: "), "a claimed box counts"


def test_a_claim_beyond_the_pools_quota_is_cold_and_says_so(house: LoopHarness) -> None:
    filled(house, 1, quota={"memory": "1Gi", "perSandbox": {"memory": "600Mi"}})
    house.refer("a", "t", resources={"limits": {"memory": "700Mi"}})
    house.settle()
    assert launch(house, "a") == (
        "Cold: pool `warm` has a quota: it can never fit the quota of pool default/warm: "
        "memory: 700Mi requested, 600Mi is the maximum for one sandbox"
    )
    assert house.condition("a", "Ready") == "True Running"


def test_an_image_is_fetched_once_for_all_members(house: LoopHarness) -> None:
    del house.engine.images[TINY]
    house.engine.registry.add(TINY)
    template(house)
    apply_pool(house, warmReplicas=6)
    pulls = []
    for _ in range(5):
        plan = house.run_pass()
        actions = [action for group in plan.groups for action in group.actions]
        pulls.append(sum(isinstance(action, PullImage) for action in actions))
    assert next(pull for pull in pulls if pull) == 1, "one fetches it, the others wait"
    house.settle()
    assert ready(house, "warm") == 6


def pulls(decided: Plan) -> int:
    return sum(isinstance(action, PullImage) for group in decided.groups for action in group.actions)


def test_a_pool_that_keeps_nothing_warm_has_its_image_fetched_once(house: LoopHarness) -> None:
    del house.engine.images[TINY]
    house.engine.registry.add(TINY)
    template(house)
    for name in ("warm", "other"):
        apply_pool(house, name, warmReplicas=0)
    first = [pulls(house.run_pass()) for _ in range(4)]
    assert sum(first) == 2, "the second one looks when the first is done"
    assert max(first) == 1
    assert TINY in house.engine.images
    assert boxes(house) == []
    house.settle()
    assert pulls(house.run_pass()) == 0


def test_an_image_that_is_nowhere_is_told_by_its_pool_and_tried_again(house: LoopHarness) -> None:
    del house.engine.images[TINY]
    template(house)
    apply_pool(house, warmReplicas=0)
    house.settle()
    degraded = {condition["type"]: condition for condition in pool(house).status["conditions"]}["Degraded"]
    assert (degraded["status"], degraded["reason"]) == ("True", "ImagePullFailed")
    assert "is not on this host" in degraded["message"]
    assert any(event.reason == "ImagePullFailed" for event in house.store.events(kind="SandboxPool"))
    house.engine.registry.add(TINY)
    house.clock.advance(300)
    house.settle()
    degraded = {condition["type"]: condition for condition in pool(house).status["conditions"]}["Degraded"]
    assert (degraded["status"], TINY in house.engine.images) == ("False", True)


def test_what_requires_a_pool_waits_for_its_quota(house: LoopHarness) -> None:
    filled(house, 0, quota={"memory": "1Gi"})
    house.refer("a", "t", poolPolicy="Require", resources={"limits": {"memory": "768Mi"}})
    house.settle()
    house.refer("b", "t", poolPolicy="Require", resources={"limits": {"memory": "768Mi"}})
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert house.condition("b", "Scheduled") == "False QuotaExceeded"
    house.delete("a")
    house.settle()
    assert house.condition("b", "Ready") == "True Running"
    assert len(boxes(house)) == 1
