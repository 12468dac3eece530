"""Containers whose row is gone, through the whole middle of the code; and daemons that die while they sweep."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from controller.kinds.planning.action import RemoveContainer
from controller.kinds.planning.outcome import Transient
from tests.contract.store_backends import Backend
from tests.loop.harness import Crash, LoopHarness


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    for name in ("kept", "lost"):
        harness.apply(name)
    harness.settle()
    yield harness
    harness.close()


def lose(backend: Backend, harness: LoopHarness, name: str) -> str:
    """Take an object's rows away behind everybody's back; the name of its container. The next daemon has begun."""
    container, obj = harness.container_name(name), harness.get(name)
    assert obj is not None
    with backend.database() as database, database.writing() as connection:
        connection.execute(text("DELETE FROM objects WHERE uid = :uid"), {"uid": obj.uid})
    harness.daemon()
    return container


def containers(harness: LoopHarness) -> set[str]:
    return {name for our in harness.ours().values() for name in our}


def test_a_container_without_an_object_goes_after_its_grace_and_leaves_a_trace(
    backend: Backend, harness: LoopHarness
) -> None:
    lost, copy = lose(backend, harness, "lost"), "somebodys-copy"
    harness.engine.add_foreign(copy, harness.engine.container(lost).labels)
    harness.run_pass()
    harness.clock.advance(59)
    harness.run_pass()
    assert lost in containers(harness)
    harness.settle()
    assert containers(harness) == {harness.container_name("kept"), copy}
    assert "Orphaned" in [event.reason for event in harness.store.events(name="lost")]
    assert harness.condition("kept", "Ready") == "True Running"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_a_daemon_that_dies_while_it_sweeps_is_followed_by_one_that_finishes(
    backend: Backend, harness: LoopHarness, step: int, after: bool
) -> None:
    """Step 1 is the trace in the store, step 2 the removal itself."""
    lost = lose(backend, harness, "lost")
    harness.run_pass()
    harness.clock.advance(60)
    harness.fuse.blow_at, harness.fuse.after = harness.fuse.steps + step, after
    with pytest.raises(Crash):
        harness.settle()
    assert (lost in containers(harness)) == ((step, after) != (2, True))
    harness.daemon()
    harness.settle()
    assert containers(harness) == {harness.container_name("kept")}


def test_a_removal_that_fails_is_told_and_tried_at_the_next_sweep(backend: Backend, harness: LoopHarness) -> None:
    lost = lose(backend, harness, "lost")
    harness.engine.fail_next(RemoveContainer, Transient("EngineError", "the disk is busy"))
    harness.settle()
    assert lost not in containers(harness)
    assert "EngineError" in [event.reason for event in harness.store.events(name="lost")]


def test_an_emptied_store_sweeps_nothing(backend: Backend, harness: LoopHarness) -> None:
    before = containers(harness)
    for name in ("lost", "kept"):
        lose(backend, harness, name)
    harness.settle()
    harness.clock.advance(1e6)
    harness.settle()
    assert containers(harness) == before
