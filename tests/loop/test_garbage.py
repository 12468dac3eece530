"""Objects without their owners are deleted, owners wait for their dependents, through crashes, with real containers."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.common.owner_reference import FOREGROUND_FINALIZER, Propagation
from controller.kinds.registry import discover
from controller.ports import ChangesGone
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, Crash, LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def apply(house: LoopHarness, name: str, *owners: str) -> None:
    references = [{"kind": "Sandbox", "name": owner} for owner in owners]
    document: dict[str, Any] = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": name, "ownerReferences": references},
        "spec": {"template": {"image": TINY, "command": ["sleep", "1000000"]}},
    }
    house.services.apply.apply([Source("test", json.dumps(document))])


def delete(house: LoopHarness, name: str, propagation: Propagation) -> None:
    kind = discover().by_name("Sandbox")
    assert kind is not None
    house.services.objects.delete(kind, "default", name, propagation=propagation)


def vanish(house: LoopHarness, name: str) -> None:
    """The owner's row goes without its dependents: by hand, or by an older version."""
    harness = house.get(name)
    assert harness is not None
    if house.engine.exists(house.container_name(name)):
        house.engine.remove(house.container_name(name))
    with house.store.transaction() as transaction:
        transaction.remove(harness)


def test_background_in_the_end_leaves_nothing(house: LoopHarness) -> None:
    for name, owners in (("a", ()), ("b", ("a",)), ("c", ("b",)), ("z", ())):
        apply(house, name, *owners)
    house.settle()
    delete(house, "a", "Background")
    house.settle()
    assert house.names() == ["z"]
    assert len(house.ours()) == 1


def test_a_foreground_owner_goes_last(house: LoopHarness) -> None:
    apply(house, "a")
    apply(house, "b", "a")
    house.settle()
    delete(house, "a", "Foreground")
    observed = []
    for _ in range(60):
        plan = house.run_pass()
        observed.append(tuple(house.names()))
        if not house.names():
            break
        if plan.next_wake is not None:
            house.clock.advance(max(0.0, plan.next_wake - house.clock.now()))
    assert observed[-1] == ()
    assert ("b",) not in observed
    assert ("a",) in observed or ("a", "b") in observed
    assert house.ours() == {}


def test_an_owner_that_only_waits_for_others_asks_for_no_pass_after_pass(house: LoopHarness) -> None:
    apply(house, "a")
    apply(house, "b", "a")
    house.settle()
    delete(house, "a", "Foreground")
    with house.store.transaction() as transaction:
        sandbox = transaction.get("Sandbox", "default", "b")
        assert sandbox is not None
        transaction.put(replace(sandbox, finalizers=(*sandbox.finalizers, "somebody/else")))
    house.settle()
    assert house.names() == ["a", "b"]
    revision = house.store.revision()
    assert not house.run_pass().writes
    assert house.store.revision() == revision
    answer = house.get("a")
    assert answer is not None
    assert answer.finalizers == (FOREGROUND_FINALIZER,)
    assert "held by foregroundDeletion" in house.get("a").status["conditions"][0]["message"]  # type: ignore[union-attr]
    vanish(house, "b")
    house.settle()
    assert house.names() == []


def test_what_lost_its_owner_in_any_way_is_found_by_the_running_daemon_and_by_the_next(house: LoopHarness) -> None:
    for name, owners in (("a", ()), ("z", ()), ("b", ("a",)), ("c", ("b",)), ("both", ("a", "z"))):
        apply(house, name, *owners)
    house.settle()
    vanish(house, "a")
    house.settle()
    assert house.names() == ["both", "z"]
    assert [owner_reference["name"] for owner_reference in house.get("both").owner_references] == ["z"]  # type: ignore[union-attr]
    vanish(house, "z")
    house.daemon()
    house.settle()
    assert (house.names(), house.ours()) == ([], {})


def test_another_of_the_owners_name_is_not_the_owner(house: LoopHarness) -> None:
    apply(house, "a")
    apply(house, "b", "a")
    house.settle()
    vanish(house, "a")
    apply(house, "a")
    house.settle()
    assert house.names() == ["a"]


def test_pruned_changes_are_no_loss(house: LoopHarness) -> None:
    apply(house, "a")
    apply(house, "b", "a")
    house.settle()
    before = house.store.revision()
    vanish(house, "a")
    house.store.prune(keep_changes=0, events_before=0)
    with pytest.raises(ChangesGone):
        house.store.changes(before)
    house.settle()
    assert house.names() == []


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_daemon_killed_at_any_step_is_followed_by_one_that_finishes(
    house: LoopHarness, propagation: Propagation, after: bool
) -> None:
    for step in range(1, 40):
        apply(house, "a")
        apply(house, "b", "a")
        apply(house, "c", "b")
        house.settle()
        if propagation == "Background":
            vanish(house, "a")
        else:
            delete(house, "a", propagation)
        house.daemon()
        house.fuse.blow_at, house.fuse.after = step, after
        crashed = False
        try:
            house.settle()
        except Crash:
            crashed = True
            house.daemon()
            house.settle()
        assert (house.names(), house.ours()) == ([], {})
        if not crashed:
            break
    else:
        pytest.fail("never came to the end")
