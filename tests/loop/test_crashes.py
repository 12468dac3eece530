"""A daemon killed at every step of every feature's life: what comes of it is what comes of a life without a crash."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.store_worlds import World, make_world
from tests.loop.harness import Crash
from tests.loop.lives import LIVES, CrashingHouse, Step

# `make test` tries every step; plain pytest, which is for seconds at a desk, a few.
_STRIDE = 1 if os.environ.get("PADDOCK_TEST_DOCKER") else 7
# So many steps each daemon lives where they die one after the other: enough to get on by, fewer than a life has.
_APART = 11


def live(house: CrashingHouse, steps: tuple[Step, ...], again: Callable[[], None] = lambda: None) -> int:
    """Every step, and what follows from it; after a crash by the next daemon, which is asked again.

    `again` may have that one crash, too. How often one crashed.
    """
    house.engine.add_foreign("somebody-elses")
    crashes = 0
    for step in (*steps, lambda house: house.settle(seconds=130)):
        todo = [step, lambda house: house.settle(seconds=0)]
        while todo:
            try:
                todo[0](house)
                del todo[0]
            except Crash:
                crashes += 1
                assert crashes < 100, "no daemon gets on"
                house.daemon()
                again()
                todo = [step, lambda house: house.settle(seconds=0)]
        house.check()
    house.check(swept=True)
    return crashes


@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("life", LIVES)
def test_a_crash_at_any_step_changes_nothing_in_the_end(world: World, life: str, after: bool) -> None:
    """A life for each step, with a crash after that one. Before it (what is there then is what was there after the last
    one) lives in which each daemon crashes some steps after the one before it, begun one step later each time."""
    store = world.store()
    house = CrashingHouse(world, store)
    live(house, LIVES[life])
    wanted, total = house.picture(), house.fuse.steps
    house.empty()
    crashes = 0
    for crash_at in range(1, total + 1 if after else min(total, _APART) + 1, _STRIDE):
        house = CrashingHouse(world, store)

        def blow(at: int, house: CrashingHouse = house) -> None:
            house.fuse.blow_at, house.fuse.after = at, after

        blow(crash_at)
        crashes += live(house, LIVES[life], lambda: None if after else blow(_APART))
        assert house.picture() == wanted, f"crash at step {crash_at} of {total}"
        house.empty()
    assert crashes >= total // _STRIDE, "the steps of the whole life were tried"


@pytest.mark.postgres
@pytest.mark.parametrize("life", LIVES)
def test_a_life_on_postgresql_is_that_on_sqlite(world: World, life: str, tmp_path: Path) -> None:
    with make_world("postgres", tmp_path) as other:
        pictures = []
        for each in (world, other):
            house = CrashingHouse(each, each.store())
            live(house, LIVES[life])
            pictures.append(house.picture())
            house.empty()
    assert pictures[0] == pictures[1]
