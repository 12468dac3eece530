"""PATCH of what holds an object and of who owns it: others' finalizers, owner references."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import FINALIZER
from controller.service import errors
from tests.helpers_api import ApiStack
from tests.service.test_applyset import sandbox_document
from tests.service.test_owners import kind, owned, owners

MINE = "example.org/cleanup"


def patch(api: ApiStack, name: str, metadata: dict[str, Any], of: str = "Sandbox") -> StoredObject:
    return api.services.patch.patch(kind(api, of), "default", name, {"metadata": metadata})


def test_a_foreign_finalizer_holds_the_object(api: ApiStack) -> None:
    api.apply(sandbox_document("a"))
    assert patch(api, "a", {"finalizers": [FINALIZER, MINE]}).generation == 1
    api.services.objects.delete(kind(api), "default", "a")
    with api.store.transaction() as transaction:
        transaction.put(without(api, FINALIZER))  # as the planner does when the container is gone
    assert api.sandbox("a").finalizers == (MINE,)
    patch(api, "a", {"finalizers": None})
    assert api.store.list("Sandbox")[0] == []


def without(api: ApiStack, finalizer: str) -> StoredObject:
    sandbox = api.sandbox("a")
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
def test_finalizers_that_are_refused(api: ApiStack, finalizers: Any, said: str) -> None:
    api.apply(sandbox_document("a"))
    before = api.sandbox("a")
    with pytest.raises(errors.Invalid) as raised:
        patch(api, "a", {"finalizers": finalizers})
    assert said in str(raised.value)
    assert api.sandbox("a") == before


def test_in_deletion_only_finalizers_can_be_removed(api: ApiStack) -> None:
    api.apply(sandbox_document("a"))
    patch(api, "a", {"finalizers": [FINALIZER, MINE]})
    api.services.objects.delete(kind(api), "default", "a")
    with pytest.raises(errors.Conflict, match="is being deleted"):
        patch(api, "a", {"labels": {"a": "b"}, "finalizers": [FINALIZER]})
    with pytest.raises(errors.Invalid, match="can only be removed"):
        patch(api, "a", {"finalizers": [FINALIZER, MINE, "example.org/more"]})
    with pytest.raises(errors.Invalid, match="Paddock's own"):
        patch(api, "a", {"finalizers": []})
    assert patch(api, "a", {"finalizers": [FINALIZER]}).finalizers == (FINALIZER,)


def test_owners_are_given_and_taken_and_looked_up(api: ApiStack) -> None:
    api.apply(sandbox_document("a") + sandbox_document("b"))
    answer = patch(api, "b", {"ownerReferences": [{"kind": "Sandbox", "name": "a"}]})
    assert answer.owner_references[0]["uid"] == api.sandbox("a").uid
    revision = api.store.revision()
    patch(api, "b", {"ownerReferences": [dict(owner_reference) for owner_reference in answer.owner_references]})
    assert api.store.revision() == revision
    patch(api, "b", {"ownerReferences": None})
    assert owners(api, "b") == []


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
def test_owners_that_are_refused(api: ApiStack, references: Any, said: str) -> None:
    api.apply(sandbox_document("a") + owned("b", "Sandbox/a"))
    with pytest.raises(errors.Invalid) as raised:
        patch(api, "a", {"ownerReferences": references})
    assert said in str(raised.value)
    assert owners(api, "a") == []
