"""A sandbox's own securityLevel in claims: a warm sandbox of another level is not taken."""

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
