"""A sandbox's own securityLevel in the loop: a warm box of another level is not taken, and a change makes a new one."""

from tests.loop.harness import LoopHarness
from tests.loop.test_claims import events
from tests.loop.test_pools import filled, house, launch

__all__ = ["house"]


def test_a_warm_sandbox_of_another_level_is_not_taken_and_one_of_the_same_is(house: LoopHarness) -> None:
    filled(house, 2)
    house.refer("same", "t", securityLevel="full-isolation")
    house.refer("other", "t", securityLevel="production")
    house.settle()
    assert launch(house, "same") == "Warm: "
    assert launch(house, "other").startswith("Cold")
    assert "capabilities" in events(house, "other")["ColdStart"]


def test_another_level_makes_a_new_container_and_says_so(house: LoopHarness) -> None:
    house.apply_template("t", image="paddock/test-tiny:1", command=["sleep", "1000000"])
    house.refer("a", "t")
    house.settle()
    before = house.engine.box(house.container_name("a"))
    assert before.networks == ("none",)
    house.refer("a", "t", securityLevel="production")
    house.settle()
    after = house.engine.box(house.container_name("a"))
    assert after.id != before.id
    assert after.networks != ("none",)
    assert "spec.securityLevel changed" in events(house, "a")["Recreating"]
