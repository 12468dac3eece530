"""A sandbox's own securityLevel in the loop: a warm box of another level is not taken, and a change makes a new one."""

from tests.loop.harness import LoopHarness
from tests.loop.test_claims import events
from tests.loop.test_pools import filled, harness, launch

__all__ = ["harness"]


def test_a_warm_sandbox_of_another_level_is_not_taken_and_one_of_the_same_is(harness: LoopHarness) -> None:
    filled(harness, 2)
    harness.refer("same", "t", securityLevel="full-isolation")
    harness.refer("other", "t", securityLevel="production")
    harness.settle()
    assert launch(harness, "same") == "Warm: "
    assert launch(harness, "other").startswith("Cold")
    assert "capabilities" in events(harness, "other")["ColdStart"]


def test_another_level_makes_a_new_container_and_says_so(harness: LoopHarness) -> None:
    harness.apply_template("t", image="paddock/test-tiny:1", command=["sleep", "1000000"])
    harness.refer("a", "t")
    harness.settle()
    before = harness.engine.box(harness.container_name("a"))
    assert before.networks == ("none",)
    harness.refer("a", "t", securityLevel="production")
    harness.settle()
    after = harness.engine.box(harness.container_name("a"))
    assert after.id != before.id
    assert after.networks != ("none",)
    assert "spec.securityLevel changed" in events(harness, "a")["Recreating"]
