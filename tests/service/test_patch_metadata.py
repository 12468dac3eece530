"""PATCH of what holds an object and of who owns it: others' finalizers, owner references."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import FINALIZER
from controller.service import errors
from tests.helpers_api import World
from tests.service.test_applyset import sandbox_document
from tests.service.test_owners import kind, owned, owners

MINE = "example.org/cleanup"


def patch(world: World, name: str, metadata: dict[str, Any], of: str = "Sandbox") -> StoredObject:
    return world.services.patch.patch(kind(world, of), "default", name, {"metadata": metadata})


def test_a_foreign_finalizer_holds_the_object(world: World) -> None:
    world.apply(sandbox_document("a"))
    assert patch(world, "a", {"finalizers": [FINALIZER, MINE]}).generation == 1
    world.services.objects.delete(kind(world), "default", "a")
    with world.store.transaction() as transaction:
        transaction.put(without(world, FINALIZER))  # as the planner does when the container is gone
    assert world.sandbox("a").finalizers == (MINE,)
    patch(world, "a", {"finalizers": None})
    assert world.store.list("Sandbox")[0] == []


def without(world: World, finalizer: str) -> StoredObject:
    sandbox = world.sandbox("a")
    return replace(sandbox, finalizers=tuple(name for name in sandbox.finalizers if name != finalizer))


@pytest.mark.parametrize(
    ("finalizers", "said"),
    [
        (None, "metadata.finalizers: `paddock/container` is Paddock's own"),
        ([MINE], "metadata.finalizers: `paddock/container` is Paddock's own"),
        ([FINALIZER, "paddock/other"], "`paddock/other` is not a valid finalizer"),
        ([FINALIZER, "cleanup"], "`cleanup` is not a valid finalizer"),
        ([FINALIZER, "foregroundDeletion"], "`foregroundDeletion` is not a valid finalizer"),
        ([FINALIZER, f"{MINE} "], "is not a valid finalizer"),
        ([FINALIZER, 1], "must be a list of names"),
        ("x", "must be a list of names"),
        ([FINALIZER, *(f"{MINE}-{n}" for n in range(16))], "at most 16 finalizers"),
    ],
)
def test_finalizers_that_are_refused(world: World, finalizers: Any, said: str) -> None:
    world.apply(sandbox_document("a"))
    before = world.sandbox("a")
    with pytest.raises(errors.Invalid) as raised:
        patch(world, "a", {"finalizers": finalizers})
    assert said in str(raised.value)
    assert world.sandbox("a") == before


def test_in_deletion_only_finalizers_can_be_removed(world: World) -> None:
    world.apply(sandbox_document("a"))
    patch(world, "a", {"finalizers": [FINALIZER, MINE]})
    world.services.objects.delete(kind(world), "default", "a")
    with pytest.raises(errors.Conflict, match="is being deleted"):
        patch(world, "a", {"labels": {"a": "b"}, "finalizers": [FINALIZER]})
    with pytest.raises(errors.Invalid, match="can only be removed"):
        patch(world, "a", {"finalizers": [FINALIZER, MINE, "example.org/more"]})
    with pytest.raises(errors.Invalid, match="Paddock's own"):
        patch(world, "a", {"finalizers": []})
    assert patch(world, "a", {"finalizers": [FINALIZER]}).finalizers == (FINALIZER,)


def test_owners_are_given_and_taken_and_looked_up(world: World) -> None:
    world.apply(sandbox_document("a") + sandbox_document("b"))
    answer = patch(world, "b", {"ownerReferences": [{"kind": "Sandbox", "name": "a"}]})
    assert answer.owner_references[0]["uid"] == world.sandbox("a").uid
    revision = world.store.revision()
    patch(world, "b", {"ownerReferences": [dict(owner_reference) for owner_reference in answer.owner_references]})
    assert world.store.revision() == revision
    patch(world, "b", {"ownerReferences": None})
    assert owners(world, "b") == []


@pytest.mark.parametrize(
    ("references", "said"),
    [
        ([{"kind": "Sandbox", "name": "nobody"}], "metadata.ownerReferences[0]: sandbox/nobody does not exist"),
        ([{"kind": "Sandbox", "name": "a"}], "an object can't own itself"),
        ([{"kind": "Sandbox", "name": "b"}], "it would own itself: sandbox/a is owned by sandbox/b"),
        ([{"kind": "Sandbox"}], "metadata.ownerReferences[0].name: is required"),
        ("x", "metadata.ownerReferences: must be a list"),
    ],
)
def test_owners_that_are_refused(world: World, references: Any, said: str) -> None:
    world.apply(sandbox_document("a") + owned("b", "Sandbox/a"))
    with pytest.raises(errors.Invalid) as raised:
        patch(world, "a", {"ownerReferences": references})
    assert said in str(raised.value)
    assert owners(world, "a") == []
