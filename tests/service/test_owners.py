"""Owner references: who may own whom; and what a deletion takes along."""

from typing import Any

import pytest

from controller.kinds.access.access import Caller, Grant
from controller.kinds.common.owner_reference import FOREGROUND_FINALIZER, IN_USE_FINALIZER, Propagation
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.access.access import acting
from tests.helpers_api import World
from tests.service.test_applyset import sandbox_document, template


def owned(name: str, *owners: str, refers: str = "") -> str:
    texts = [f"{{kind: {word.split('/')[0]}, name: {word.split('/')[1]}}}" for word in owners]
    return sandbox_document(name, refers, f", ownerReferences: [{', '.join(texts)}]")


def kind(world: World, name: str = "Sandbox") -> Kind:
    observed = world.services.registry.by_name(name)
    assert observed is not None
    return observed


def delete(world: World, name: str, propagation: Propagation | None = None, of: str = "Sandbox") -> StoredObject:
    return world.services.objects.delete(kind(world, of), "default", name, propagation=propagation)


def going(world: World) -> dict[str, bool]:
    return {stored.name: stored.deleted_at is not None for stored in world.store.list("Sandbox")[0]}


def owners(world: World, name: str) -> list[Any]:
    return [owner_reference["name"] for owner_reference in world.sandbox(name).owner_references]


def test_an_owner_is_resolved_by_name_to_its_uid(world: World) -> None:
    assert world.apply(owned("b", "Sandbox/a") + sandbox_document("a")) == ["created", "created"]
    [reference] = world.sandbox("b").owner_references
    assert reference == {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "name": "a",
        "uid": world.sandbox("a").uid,
    }
    revision = world.store.revision()
    assert world.apply(owned("b", "Sandbox/a")) == ["unchanged"]
    assert world.store.revision() == revision
    assert world.apply(sandbox_document("b")) == ["configured"], "what a file gave, a file takes away"
    assert world.sandbox("b").owner_references == ()


def test_references_that_others_gave_stay(world: World) -> None:
    world.apply(sandbox_document("a") + sandbox_document("c") + sandbox_document("b"))
    document = {"kind": "Sandbox", "name": "c", "uid": world.sandbox("c").uid, "later": 1}
    world.change("b", owner_references=(document,))
    world.apply(owned("b", "Sandbox/a"))
    assert owners(world, "b") == ["c", "a"]
    world.apply(sandbox_document("b"))
    assert world.sandbox("b").owner_references == (document,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (owned("b", "Sandbox/nobody"), "sandbox/nobody does not exist in namespace `default`"),
        (owned("b", "Sandbox/b"), "can't own itself"),
        (owned("b", "Box/a"), "`Box` is not a kind"),
        (sandbox_document("b", metadata=", ownerReferences: [{kind: Sandbox, name: a, uid: x}]"), "leave `uid` out"),
        (owned("b", "Sandbox/dying"), "sandbox/dying is being deleted"),
        (owned("b", "Sandbox/c") + owned("c", "Sandbox/b"), "would own itself"),
        (owned("a", "Sandbox/child"), "sandbox/a is owned by sandbox/child is owned by sandbox/a"),
        (
            sandbox_document(
                "b",
                metadata=", ownerReferences: [{kind: Sandbox, name: a, controller: true},"
                " {kind: Sandbox, name: child, controller: true}]",
            ),
            "only one owner may be the controller",
        ),
    ],
)
def test_an_invalid_owner_is_refused(world: World, text: str, words: str) -> None:
    world.apply(sandbox_document("a") + owned("child", "Sandbox/a") + sandbox_document("dying"))
    delete(world, "dying")
    revision = world.store.revision()
    with pytest.raises(errors.Invalid) as raised:
        world.apply(text)
    assert words in str(raised.value)
    assert "metadata.ownerReferences" in str(raised.value)
    assert world.store.revision() == revision


def test_post_and_put_take_owners_too(world: World) -> None:
    world.apply(sandbox_document("a"))
    created = world.services.write.create(kind(world), "default", owned("b", "Sandbox/a"))
    assert created.owner_references[0]["uid"] == world.sandbox("a").uid
    with pytest.raises(errors.Invalid, match="does not exist"):
        world.services.write.create(kind(world), "default", owned("c", "Sandbox/nobody"))
    body = sandbox_document("b", metadata=f', resourceVersion: "{created.resource_version}"')
    assert world.services.write.replace(kind(world), "default", "b", body).owner_references == ()


def test_background_takes_along_what_has_no_other_owner(world: World) -> None:
    world.apply(sandbox_document("a") + sandbox_document("z") + owned("b", "Sandbox/a") + owned("c", "Sandbox/b"))
    world.apply(owned("d", "Sandbox/a", "Sandbox/z"))
    delete(world, "a")
    assert going(world) == {"a": True, "b": True, "c": True, "d": False, "z": False}
    assert owners(world, "d") == ["z"]
    assert FOREGROUND_FINALIZER not in world.sandbox("a").finalizers


def test_foreground_keeps_the_owner_until_its_dependents_are_gone(world: World) -> None:
    world.apply(template("t") + owned("b", "SandboxTemplate/t", refers="t") + owned("c", "Sandbox/b"))
    answer = delete(world, "t", "Foreground", of="SandboxTemplate")
    assert (answer.finalizers, answer.deleted_at) == ((FOREGROUND_FINALIZER, IN_USE_FINALIZER), world.clock.now())
    assert going(world) == {"b": True, "c": True}
    assert FOREGROUND_FINALIZER in world.sandbox("b").finalizers
    assert FOREGROUND_FINALIZER not in world.sandbox("c").finalizers
    again = delete(world, "t", of="SandboxTemplate")
    assert again.resource_version == answer.resource_version, "to ask again changes nothing"
    assert delete(world, "t", "Background", of="SandboxTemplate").finalizers == (IN_USE_FINALIZER,)


def test_foreground_without_dependents_waits_for_nothing(world: World) -> None:
    world.apply(template("t"))
    delete(world, "t", "Foreground", of="SandboxTemplate")
    assert world.store.get("SandboxTemplate", "default", "t") is None


def test_orphans_stay_and_name_no_owner(world: World) -> None:
    world.apply(sandbox_document("a") + owned("b", "Sandbox/a") + owned("c", "Sandbox/b"))
    delete(world, "a", "Orphan")
    assert going(world) == {"a": True, "b": False, "c": False}
    assert (owners(world, "b"), owners(world, "c")) == ([], ["b"])


def test_a_cascade_with_an_object_in_use_is_refused(world: World) -> None:
    world.apply(template("t") + owned("user", "SandboxTemplate/t", refers="t"))
    world.apply(sandbox_document("other", "t"))
    revision = world.store.revision()
    with pytest.raises(errors.Conflict, match="sandboxtemplate `t` is used by sandbox other;"):
        delete(world, "t", of="SandboxTemplate")
    with pytest.raises(errors.Conflict, match="used by sandbox other, user;"):
        delete(world, "t", "Orphan", of="SandboxTemplate")
    assert world.store.revision() == revision
    delete(world, "other")
    answer = delete(world, "t", of="SandboxTemplate")
    assert going(world) == {"user": True, "other": True}
    assert (answer.deleted_at, answer.finalizers) == (world.clock.now(), (IN_USE_FINALIZER,)), "it goes with its users"


def test_template_goes_at_once_with_users_that_do(world: World) -> None:
    world.apply(template("t") + sandbox_document("user", "t"))
    world.change("user", finalizers=())
    delete(world, "user")
    delete(world, "t", of="SandboxTemplate")
    assert world.store.get("SandboxTemplate", "default", "t") is None


def test_an_owner_of_an_unknown_kind_is_not_gone(world: World) -> None:
    world.apply(sandbox_document("a") + owned("b", "Sandbox/a"))
    foreign = {"kind": "OfALaterVersion", "name": "x", "uid": "u"}
    world.change("b", owner_references=(*world.sandbox("b").owner_references, foreign))
    delete(world, "a")
    assert going(world)["b"] is False
    assert world.sandbox("b").owner_references == (foreign,)


USER = Caller("ann", grants=(Grant(role="user", namespaces=("default",)),))
OPERATOR = Caller("olga", grants=(Grant(role="operator", namespaces=("default",)),))


def of_template(flag: str = "") -> str:
    text = f", blockOwnerDeletion: {flag}" if flag else ""
    return sandbox_document("b", metadata=f", ownerReferences: [{{kind: SandboxTemplate, name: t{text}}}]")


def blocking(world: World) -> Any:
    [reference] = world.sandbox("b").owner_references
    return reference.get("blockOwnerDeletion")


def test_blocking_a_deletion_needs_write_access_to_the_owner(world: World) -> None:
    world.apply(template("t"))
    with acting(USER) as refusal, pytest.raises(errors.Invalid, match="which you may not write; leave it out"):
        world.apply(of_template("true"))
    assert [access_request.verb for access_request, _ in refusal] == ["update"]
    with acting(USER) as refused_acting:
        world.apply(of_template())
    assert (blocking(world), refused_acting) == (False, [])
    with acting(OPERATOR):
        world.apply(of_template("true"))
    assert blocking(world) is True
    with acting(USER):
        assert world.apply(of_template("true")) == ["unchanged"], "what an operator gave, a user may keep"
        world.apply(of_template("false"))
    assert blocking(world) is False
    with acting(USER), pytest.raises(errors.Invalid, match="leave it out"):
        world.apply(of_template("true"))


def test_the_owner_waits_only_for_whom_it_has_to(world: World) -> None:
    world.apply(template("t"))
    with acting(USER):
        world.apply(of_template())
    world.change("b", finalizers=("example.com/mine",))
    delete(world, "t", "Foreground", of="SandboxTemplate")
    assert world.store.get("SandboxTemplate", "default", "t") is None
    assert going(world) == {"b": True}
