"""Limits of a sandbox's life: activeDeadlineSeconds, ttlSecondsAfterFinished; real store, fake engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.store_worlds import World
from tests.loop.harness import Crash, LoopHarness

DEADLINE: dict[str, Any] = {"activeDeadlineSeconds": 100, "shutdownGracePeriodSeconds": 5, "keepRunning": True}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def go_on(house: LoopHarness, seconds: float) -> None:
    """So much time goes by, with a pass whenever one is due."""
    end = house.clock.now() + seconds
    house.settle(seconds=seconds)
    house.clock.advance(max(0.0, end - house.clock.now()))
    house.settle(seconds=0)


def test_the_deadline_of_a_sandbox_that_sleeps_passes_too(house: LoopHarness) -> None:
    house.engine.at_rest = True
    idle = {**DEADLINE, "keepRunning": False, "idleTimeoutSeconds": 20}
    house.apply("web", lifecycle=idle)
    house.settle(seconds=0)
    go_on(house, 30)
    assert house.condition("web", "Suspended") == "True IdleReaped"
    go_on(house, 75)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"
    assert house.condition("web", "Suspended") == "False NotSuspended"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_daemon_killed_at_any_step_of_a_short_life_is_followed_by_one_that_ends_it(world: World, after: bool) -> None:
    store = world.store()
    for crash_at in range(1, 40):
        house = LoopHarness(store)
        house.fuse.blow_at, house.fuse.after = crash_at, after
        house.apply("web", lifecycle={**DEADLINE, "ttlSecondsAfterFinished": 50})
        blown = False
        try:
            go_on(house, 170)
        except Crash:
            blown = True
            house.daemon()
            go_on(house, 170)
        assert (house.names(), house.ours(), list(store.instances())) == ([], {}, []), f"step {crash_at}"
        house.close()
        if not blown:
            assert crash_at > 8
            return
    raise AssertionError("it never came to its end")
