"""Claims of pools with a quota of their own."""

from typing import Any

from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, containers, filled, harness, launch, pool

__all__ = ["harness"]


def ready(harness: LoopHarness, name: str) -> int:
    return int(pool(harness, name).status["readyReplicas"])


def template(harness: LoopHarness, name: str = "t", memory: str = "256Mi", **spec: Any) -> None:
    limits = {"limits": {"memory": memory, "cpu": "500m", "pids": 16}}
    harness.apply_template(name, image=TINY, command=["sleep", "1000000"], resources=limits, **spec)


def test_a_pool_keeps_within_its_own_quota(harness: LoopHarness) -> None:
    template(harness)
    apply_pool(harness, warmReplicas=3, quota={"memory": "600Mi"})
    harness.settle()
    assert ready(harness, "warm") == 2
    degraded = {condition["type"]: condition for condition in pool(harness).status["conditions"]}["Degraded"]
    assert "the quota of pool default/warm: memory: 256Mi requested, 512Mi of 600Mi used" in degraded["message"]
    harness.refer("a", "t")
    harness.settle()
    assert (ready(harness, "warm"), launch(harness, "a")) == (1, "Warm: "), "a claimed sandbox counts"


def test_a_claim_beyond_the_pools_quota_is_cold_and_says_so(harness: LoopHarness) -> None:
    filled(harness, 1, quota={"memory": "1Gi", "perSandbox": {"memory": "600Mi"}})
    harness.refer("a", "t", resources={"limits": {"memory": "700Mi"}})
    harness.settle()
    assert launch(harness, "a") == (
        "Cold: pool `warm` has a quota: it can never fit the quota of pool default/warm: "
        "memory: 700Mi requested, 600Mi is the maximum for one sandbox"
    )
    assert harness.condition("a", "Ready") == "True Running"


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
