"""Objects without their owners are deleted, owners wait for their dependents, through crashes, with real containers."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from controller.kinds.common.owner_reference import FOREGROUND_FINALIZER, Propagation
from controller.kinds.registry import discover
from controller.ports import ChangesGone
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness, killed_at_each_step


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def apply(harness: LoopHarness, name: str, *owners: str) -> None:
    references = [{"kind": "Sandbox", "name": owner} for owner in owners]
    document: dict[str, Any] = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": name, "ownerReferences": references},
        "spec": {"template": {"image": TINY, "command": ["sleep", "1000000"]}},
    }
    harness.services.apply.apply([Source("test", json.dumps(document))])


def delete(harness: LoopHarness, name: str, propagation: Propagation) -> None:
    kind = discover().by_name("Sandbox")
    assert kind is not None
    harness.services.objects.delete(kind, "default", name, propagation=propagation)


def vanish(harness: LoopHarness, name: str) -> None:
    """The owner's row goes without its dependents: by hand, or by an older version."""
    sandbox = harness.get(name)
    assert sandbox is not None
    if harness.engine.exists(harness.container_name(name)):
        harness.engine.remove(harness.container_name(name))
    with harness.store.transaction() as transaction:
        transaction.remove(sandbox)


def test_background_in_the_end_leaves_nothing(harness: LoopHarness) -> None:
    for name, owners in (("a", ()), ("b", ("a",)), ("c", ("b",)), ("z", ())):
        apply(harness, name, *owners)
    harness.settle()
    delete(harness, "a", "Background")
    harness.settle()
    assert harness.names() == ["z"]
    assert len(harness.ours()) == 1


def test_a_foreground_owner_goes_last(harness: LoopHarness) -> None:
    apply(harness, "a")
    apply(harness, "b", "a")
    harness.settle()
    delete(harness, "a", "Foreground")
    observed = []
    for _ in range(60):
        plan = harness.run_pass()
        observed.append(tuple(harness.names()))
        if not harness.names():
            break
        if plan.next_wake is not None:
            harness.clock.advance(max(0.0, plan.next_wake - harness.clock.now()))
    assert observed[-1] == ()
    assert ("b",) not in observed
    assert ("a",) in observed or ("a", "b") in observed
    assert harness.ours() == {}


def test_an_owner_that_only_waits_for_others_asks_for_no_pass_after_pass(harness: LoopHarness) -> None:
    apply(harness, "a")
    apply(harness, "b", "a")
    harness.settle()
    delete(harness, "a", "Foreground")
    with harness.store.transaction() as transaction:
        sandbox = transaction.get("Sandbox", "default", "b")
        assert sandbox is not None
        transaction.put(replace(sandbox, finalizers=(*sandbox.finalizers, "somebody/else")))
    harness.settle()
    assert harness.names() == ["a", "b"]
    revision = harness.store.revision()
    assert not harness.run_pass().writes
    assert harness.store.revision() == revision
    answer = harness.get("a")
    assert answer is not None
    assert answer.finalizers == (FOREGROUND_FINALIZER,)
    assert "held by foregroundDeletion" in harness.get("a").status["conditions"][0]["message"]  # type: ignore[union-attr]
    vanish(harness, "b")
    harness.settle()
    assert harness.names() == []


def test_what_lost_its_owner_in_any_way_is_found_by_the_running_daemon_and_by_the_next(harness: LoopHarness) -> None:
    for name, owners in (("a", ()), ("z", ()), ("b", ("a",)), ("c", ("b",)), ("both", ("a", "z"))):
        apply(harness, name, *owners)
    harness.settle()
    vanish(harness, "a")
    harness.settle()
    assert harness.names() == ["both", "z"]
    assert [owner_reference["name"] for owner_reference in harness.get("both").owner_references] == ["z"]  # type: ignore[union-attr]
    vanish(harness, "z")
    harness.daemon()
    harness.settle()
    assert (harness.names(), harness.ours()) == ([], {})


def test_another_of_the_owners_name_is_not_the_owner(harness: LoopHarness) -> None:
    apply(harness, "a")
    apply(harness, "b", "a")
    harness.settle()
    vanish(harness, "a")
    apply(harness, "a")
    harness.settle()
    assert harness.names() == ["a"]


def test_pruned_changes_are_no_loss(harness: LoopHarness) -> None:
    apply(harness, "a")
    apply(harness, "b", "a")
    harness.settle()
    before = harness.store.revision()
    vanish(harness, "a")
    harness.store.prune(keep_changes=0, events_before=0)
    with pytest.raises(ChangesGone):
        harness.store.changes(before)
    harness.settle()
    assert harness.names() == []


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
def test_a_daemon_killed_at_any_step_is_followed_by_one_that_finishes(
    backend: Backend, harness: LoopHarness, propagation: Propagation
) -> None:
    for name, owners in (("a", ()), ("b", ("a",)), ("c", ("b",))):
        apply(harness, name, *owners)
    harness.settle()
    end = vanish if propagation == "Background" else partial(delete, propagation=propagation)
    moments = 0
    for _ in killed_at_each_step(harness, backend.path(), lambda: end(harness, "a"), harness.daemon, harness.settle):
        moments += 1
        harness.settle()
        assert (harness.names(), harness.ours()) == ([], {}), f"moment {moments}"
    assert moments > 10
