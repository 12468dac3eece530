"""A daemon killed at every step of every feature's life: what comes of it is what comes of a life without a crash."""

import itertools
import os

import pytest

from tests.contract.store_worlds import World
from tests.loop.house import Crash
from tests.loop.lives import LIVES, CrashingHouse, Step

# `make test` tries every step; plain pytest, which is for seconds at a desk, a few.
_STRIDE = 1 if os.environ.get("PADDOCK_TEST_DOCKER") else 7


def live(house: CrashingHouse, steps: tuple[Step, ...]) -> None:
    """Every step, and what follows from it; after a crash by the next daemon, which is asked again."""
    house.engine.add_foreign("somebody-elses")
    for step in (*steps, lambda house: house.settle(seconds=130)):
        try:
            step(house)
            house.settle(seconds=0)
        except Crash:
            house.daemon()
            step(house)
        house.settle(seconds=0)
        house.check()
    house.check(swept=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("life", LIVES)
def test_a_crash_at_any_step_changes_nothing_in_the_end(world: World, life: str, after: bool) -> None:
    store = world.store()
    house = CrashingHouse(world, store)
    live(house, LIVES[life])
    wanted, total = house.picture(), house.fuse.steps
    house.empty()
    crashes = 0
    for crash_at in itertools.count(1, _STRIDE):
        house = CrashingHouse(world, store)
        house.fuse.blow_at, house.fuse.after = crash_at, after
        fuse = house.fuse
        live(house, LIVES[life])
        assert house.picture() == wanted, f"crash at step {crash_at} of {total}"
        house.empty()
        if not fuse.blown:
            break
        crashes += 1
    assert crashes >= total // 2 // _STRIDE, "the steps of the whole life were tried"
