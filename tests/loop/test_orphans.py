"""Containers whose row is gone, through the whole middle of the house; and daemons that die while they sweep."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from controller.kinds.planning.action import RemoveContainer
from controller.kinds.planning.outcome import Transient
from tests.contract.store_worlds import World
from tests.loop.harness import Crash, LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    for name in ("kept", "lost"):
        harness.apply(name)
    harness.settle()
    yield harness
    harness.close()


def lose(world: World, house: LoopHarness, name: str) -> str:
    """Take an object's rows away behind everybody's back; the name of its container. The next daemon has begun."""
    container, harness = house.container_name(name), house.get(name)
    assert harness is not None
    with world.database() as database, database.writing() as connection:
        connection.execute(text("DELETE FROM objects WHERE uid = :uid"), {"uid": harness.uid})
    house.daemon()
    return container


def containers(house: LoopHarness) -> set[str]:
    return {name for our in house.ours().values() for name in our}


def test_a_container_without_an_object_goes_after_its_grace_and_leaves_a_trace(
    world: World, house: LoopHarness
) -> None:
    lost, copy = lose(world, house, "lost"), "somebodys-copy"
    house.engine.add_foreign(copy, house.engine.box(lost).labels)
    house.run_pass()
    house.clock.advance(59)
    house.run_pass()
    assert lost in containers(house)
    house.settle()
    assert containers(house) == {house.container_name("kept"), copy}
    assert "Orphaned" in [event.reason for event in house.store.events(name="lost")]
    assert house.condition("kept", "Ready") == "True Running"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_a_daemon_that_dies_while_it_sweeps_is_followed_by_one_that_finishes(
    world: World, house: LoopHarness, step: int, after: bool
) -> None:
    """Step 1 is the trace in the store, step 2 the removal itself."""
    lost = lose(world, house, "lost")
    house.run_pass()
    house.clock.advance(60)
    house.fuse.blow_at, house.fuse.after = house.fuse.steps + step, after
    with pytest.raises(Crash):
        house.settle()
    assert (lost in containers(house)) == ((step, after) != (2, True))
    house.daemon()
    house.settle()
    assert containers(house) == {house.container_name("kept")}


def test_a_removal_that_fails_is_told_and_tried_at_the_next_sweep(world: World, house: LoopHarness) -> None:
    lost = lose(world, house, "lost")
    house.engine.fail_next(RemoveContainer, Transient("EngineError", "the disk is busy"))
    house.settle()
    assert lost not in containers(house)
    assert "EngineError" in [event.reason for event in house.store.events(name="lost")]


def test_an_emptied_store_sweeps_nothing(world: World, house: LoopHarness) -> None:
    before = containers(house)
    for name in ("lost", "kept"):
        lose(world, house, name)
    house.settle()
    house.clock.advance(1e6)
    house.settle()
    assert containers(house) == before
