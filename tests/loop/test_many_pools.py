"""Several pools on one host: filled by priority, each within a quota of its own."""

from typing import Any

from controller.kinds.planning.action import PullImage
from controller.kinds.planning.plan import Plan
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, containers, filled, harness, launch, pool, quota

__all__ = ["harness"]


def ready(harness: LoopHarness, name: str) -> int:
    return int(pool(harness, name).status["readyReplicas"])


def template(harness: LoopHarness, name: str = "t", memory: str = "256Mi", **spec: Any) -> None:
    limits = {"limits": {"memory": memory, "cpu": "500m", "pids": 16}}
    harness.apply_template(name, image=TINY, command=["sleep", "1000000"], resources=limits, **spec)


def test_the_pool_of_higher_priority_is_filled_first(harness: LoopHarness) -> None:
    quota(harness, memory="768Mi")
    template(harness)
    apply_pool(harness, "low", warmReplicas=2)
    apply_pool(harness, "high", warmReplicas=2, priority=5)
    harness.settle()
    assert (ready(harness, "high"), ready(harness, "low")) == (2, 1)


def test_a_pool_of_lower_priority_gives_way_and_equals_do_not(harness: LoopHarness) -> None:
    quota(harness, memory="768Mi")
    template(harness)
    apply_pool(harness, "low", warmReplicas=3)
    harness.settle()
    apply_pool(harness, "equal", warmReplicas=1)
    harness.settle()
    assert (ready(harness, "low"), ready(harness, "equal")) == (3, 0)
    apply_pool(harness, "high", warmReplicas=2, priority=5)
    harness.settle()
    assert (ready(harness, "low"), ready(harness, "high")) == (1, 2)


def test_one_member_of_the_least_pool_goes_for_one_sandbox(harness: LoopHarness) -> None:
    quota(harness, memory="1Gi")
    template(harness)
    apply_pool(harness, "low", warmReplicas=2)
    apply_pool(harness, "high", warmReplicas=2, priority=5)
    harness.settle()
    harness.apply("a", resources={"limits": {"memory": "256Mi"}})
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    assert (ready(harness, "low"), ready(harness, "high")) == (1, 2)


def test_a_pool_keeps_within_its_own_quota(harness: LoopHarness) -> None:
    template(harness)
    apply_pool(harness, warmReplicas=3, quota={"memory": "600Mi"})
    harness.settle()
    assert ready(harness, "warm") == 2
    degraded = {condition["type"]: condition for condition in pool(harness).status["conditions"]}["Degraded"]
    assert "the quota of pool default/warm: memory: 256Mi requested, 512Mi of 600Mi used" in degraded["message"]
    harness.refer("a", "t")
    harness.settle()
    assert (ready(harness, "warm"), launch(harness, "a")) == (1, "Warm: "), "a claimed box counts"


def test_a_claim_beyond_the_pools_quota_is_cold_and_says_so(harness: LoopHarness) -> None:
    filled(harness, 1, quota={"memory": "1Gi", "perSandbox": {"memory": "600Mi"}})
    harness.refer("a", "t", resources={"limits": {"memory": "700Mi"}})
    harness.settle()
    assert launch(harness, "a") == (
        "Cold: pool `warm` has a quota: it can never fit the quota of pool default/warm: "
        "memory: 700Mi requested, 600Mi is the maximum for one sandbox"
    )
    assert harness.condition("a", "Ready") == "True Running"


def test_an_image_is_fetched_once_for_all_members(harness: LoopHarness) -> None:
    del harness.engine.images[TINY]
    harness.engine.registry.add(TINY)
    template(harness)
    apply_pool(harness, warmReplicas=6)
    pulls = []
    for _ in range(5):
        plan = harness.run_pass()
        actions = [action for group in plan.groups for action in group.actions]
        pulls.append(sum(isinstance(action, PullImage) for action in actions))
    assert next(pull for pull in pulls if pull) == 1, "one fetches it, the others wait"
    harness.settle()
    assert ready(harness, "warm") == 6


def pulls(decided: Plan) -> int:
    return sum(isinstance(action, PullImage) for group in decided.groups for action in group.actions)


def test_a_pool_that_keeps_nothing_warm_has_its_image_fetched_once(harness: LoopHarness) -> None:
    del harness.engine.images[TINY]
    harness.engine.registry.add(TINY)
    template(harness)
    for name in ("warm", "other"):
        apply_pool(harness, name, warmReplicas=0)
    first = [pulls(harness.run_pass()) for _ in range(4)]
    assert sum(first) == 2, "the second one looks when the first is done"
    assert max(first) == 1
    assert TINY in harness.engine.images
    assert containers(harness) == []
    harness.settle()
    assert pulls(harness.run_pass()) == 0


def test_an_image_that_is_nowhere_is_told_by_its_pool_and_tried_again(harness: LoopHarness) -> None:
    del harness.engine.images[TINY]
    template(harness)
    apply_pool(harness, warmReplicas=0)
    harness.settle()
    degraded = {condition["type"]: condition for condition in pool(harness).status["conditions"]}["Degraded"]
    assert (degraded["status"], degraded["reason"]) == ("True", "ImagePullFailed")
    assert "is not on this host" in degraded["message"]
    assert any(event.reason == "ImagePullFailed" for event in harness.store.events(kind="SandboxPool"))
    harness.engine.registry.add(TINY)
    harness.clock.advance(300)
    harness.settle()
    degraded = {condition["type"]: condition for condition in pool(harness).status["conditions"]}["Degraded"]
    assert (degraded["status"], TINY in harness.engine.images) == ("False", True)


def test_what_requires_a_pool_waits_for_its_quota(harness: LoopHarness) -> None:
    filled(harness, 0, quota={"memory": "1Gi"})
    harness.refer("a", "t", poolPolicy="Require", resources={"limits": {"memory": "768Mi"}})
    harness.settle()
    harness.refer("b", "t", poolPolicy="Require", resources={"limits": {"memory": "768Mi"}})
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    assert harness.condition("b", "Scheduled") == "False QuotaExceeded"
    harness.delete("a")
    harness.settle()
    assert harness.condition("b", "Ready") == "True Running"
    assert len(containers(harness)) == 1
