"""Limits of a sandbox's life: activeDeadlineSeconds, ttlSecondsAfterFinished; real store, fake engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.store_worlds import World
from tests.loop.harness import Crash, LoopHarness

DEADLINE: dict[str, Any] = {"activeDeadlineSeconds": 100, "shutdownGracePeriodSeconds": 5, "keepRunning": True}


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def go_on(harness: LoopHarness, seconds: float) -> None:
    """So much time goes by, with a pass whenever one is due."""
    end = harness.clock.now() + seconds
    harness.settle(seconds=seconds)
    harness.clock.advance(max(0.0, end - harness.clock.now()))
    harness.settle(seconds=0)


def test_the_deadline_of_a_sandbox_that_sleeps_passes_too(harness: LoopHarness) -> None:
    harness.engine.at_rest = True
    idle = {**DEADLINE, "keepRunning": False, "idleTimeoutSeconds": 20}
    harness.apply("web", lifecycle=idle)
    harness.settle(seconds=0)
    go_on(harness, 30)
    assert harness.condition("web", "Suspended") == "True IdleReaped"
    go_on(harness, 75)
    assert harness.condition("web", "Finished") == "True DeadlineExceeded"
    assert harness.condition("web", "Suspended") == "False NotSuspended"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_daemon_killed_at_any_step_of_a_short_life_is_followed_by_one_that_ends_it(world: World, after: bool) -> None:
    store = world.store()
    for crash_at in range(1, 40):
        harness = LoopHarness(store)
        harness.fuse.blow_at, harness.fuse.after = crash_at, after
        harness.apply("web", lifecycle={**DEADLINE, "ttlSecondsAfterFinished": 50})
        blown = False
        try:
            go_on(harness, 170)
        except Crash:
            blown = True
            harness.daemon()
            go_on(harness, 170)
        assert (harness.names(), harness.ours(), list(store.instances())) == ([], {}, []), f"step {crash_at}"
        harness.close()
        if not blown:
            assert crash_at > 8
            return
    raise AssertionError("it never came to its end")
