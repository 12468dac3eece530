"""Owner references: who may own whom; and what a deletion takes along."""

from typing import Any

import pytest

from controller.kinds.access.access import Caller, Grant
from controller.kinds.common.owner_reference import FOREGROUND_FINALIZER, IN_USE_FINALIZER, Propagation
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.access.access import acting
from tests.helpers_api import ApiStack
from tests.service.test_applyset import sandbox_document, template


def owned(name: str, *owners: str, refers: str = "") -> str:
    texts = [f"{{kind: {word.split('/')[0]}, name: {word.split('/')[1]}}}" for word in owners]
    return sandbox_document(name, refers, f", ownerReferences: [{', '.join(texts)}]")


def kind(api: ApiStack, name: str = "Sandbox") -> Kind:
    observed = api.services.registry.by_name(name)
    assert observed is not None
    return observed


def delete(api: ApiStack, name: str, propagation: Propagation | None = None, of: str = "Sandbox") -> StoredObject:
    return api.services.objects.delete(kind(api, of), "default", name, propagation=propagation)


def going(api: ApiStack) -> dict[str, bool]:
    return {stored.name: stored.deleted_at is not None for stored in api.store.list("Sandbox")[0]}


def owners(api: ApiStack, name: str) -> list[Any]:
    return [owner_reference["name"] for owner_reference in api.sandbox(name).owner_references]


def test_an_owner_is_resolved_by_name_to_its_uid(api: ApiStack) -> None:
    assert api.apply(owned("b", "Sandbox/a") + sandbox_document("a")) == ["created", "created"]
    [reference] = api.sandbox("b").owner_references
    assert reference == {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "name": "a",
        "uid": api.sandbox("a").uid,
    }
    revision = api.store.revision()
    assert api.apply(owned("b", "Sandbox/a")) == ["unchanged"]
    assert api.store.revision() == revision
    assert api.apply(sandbox_document("b")) == ["configured"], "what a file gave, a file takes away"
    assert api.sandbox("b").owner_references == ()


def test_references_that_others_gave_stay(api: ApiStack) -> None:
    api.apply(sandbox_document("a") + sandbox_document("c") + sandbox_document("b"))
    document = {"kind": "Sandbox", "name": "c", "uid": api.sandbox("c").uid, "later": 1}
    api.change("b", owner_references=(document,))
    api.apply(owned("b", "Sandbox/a"))
    assert owners(api, "b") == ["c", "a"]
    api.apply(sandbox_document("b"))
    assert api.sandbox("b").owner_references == (document,)


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
def test_an_invalid_owner_is_refused(api: ApiStack, text: str, words: str) -> None:
    api.apply(sandbox_document("a") + owned("child", "Sandbox/a") + sandbox_document("dying"))
    delete(api, "dying")
    revision = api.store.revision()
    with pytest.raises(errors.Invalid) as raised:
        api.apply(text)
    assert words in str(raised.value)
    assert "metadata.ownerReferences" in str(raised.value)
    assert api.store.revision() == revision


def test_post_and_put_take_owners_too(api: ApiStack) -> None:
    api.apply(sandbox_document("a"))
    created = api.services.write.create(kind(api), "default", owned("b", "Sandbox/a"))
    assert created.owner_references[0]["uid"] == api.sandbox("a").uid
    with pytest.raises(errors.Invalid, match="does not exist"):
        api.services.write.create(kind(api), "default", owned("c", "Sandbox/nobody"))
    body = sandbox_document("b", metadata=f', resourceVersion: "{created.resource_version}"')
    assert api.services.write.replace(kind(api), "default", "b", body).owner_references == ()


def test_background_takes_along_what_has_no_other_owner(api: ApiStack) -> None:
    api.apply(sandbox_document("a") + sandbox_document("z") + owned("b", "Sandbox/a") + owned("c", "Sandbox/b"))
    api.apply(owned("d", "Sandbox/a", "Sandbox/z"))
    delete(api, "a")
    assert going(api) == {"a": True, "b": True, "c": True, "d": False, "z": False}
    assert owners(api, "d") == ["z"]
    assert FOREGROUND_FINALIZER not in api.sandbox("a").finalizers


def test_foreground_keeps_the_owner_until_its_dependents_are_gone(api: ApiStack) -> None:
    api.apply(template("t") + owned("b", "SandboxTemplate/t", refers="t") + owned("c", "Sandbox/b"))
    answer = delete(api, "t", "Foreground", of="SandboxTemplate")
    assert (answer.finalizers, answer.deleted_at) == ((FOREGROUND_FINALIZER, IN_USE_FINALIZER), api.clock.now())
    assert going(api) == {"b": True, "c": True}
    assert FOREGROUND_FINALIZER in api.sandbox("b").finalizers
    assert FOREGROUND_FINALIZER not in api.sandbox("c").finalizers
    again = delete(api, "t", of="SandboxTemplate")
    assert again.resource_version == answer.resource_version, "to ask again changes nothing"
    assert delete(api, "t", "Background", of="SandboxTemplate").finalizers == (IN_USE_FINALIZER,)


def test_foreground_without_dependents_waits_for_nothing(api: ApiStack) -> None:
    api.apply(template("t"))
    delete(api, "t", "Foreground", of="SandboxTemplate")
    assert api.store.get("SandboxTemplate", "default", "t") is None


def test_orphans_stay_and_name_no_owner(api: ApiStack) -> None:
    api.apply(sandbox_document("a") + owned("b", "Sandbox/a") + owned("c", "Sandbox/b"))
    delete(api, "a", "Orphan")
    assert going(api) == {"a": True, "b": False, "c": False}
    assert (owners(api, "b"), owners(api, "c")) == ([], ["b"])


def test_a_cascade_with_an_object_in_use_is_refused(api: ApiStack) -> None:
    api.apply(template("t") + owned("user", "SandboxTemplate/t", refers="t"))
    api.apply(sandbox_document("other", "t"))
    revision = api.store.revision()
    with pytest.raises(errors.Conflict, match="sandboxtemplate `t` is used by sandbox other;"):
        delete(api, "t", of="SandboxTemplate")
    with pytest.raises(errors.Conflict, match="used by sandbox other, user;"):
        delete(api, "t", "Orphan", of="SandboxTemplate")
    assert api.store.revision() == revision
    delete(api, "other")
    answer = delete(api, "t", of="SandboxTemplate")
    assert going(api) == {"user": True, "other": True}
    assert (answer.deleted_at, answer.finalizers) == (api.clock.now(), (IN_USE_FINALIZER,)), "it goes with its users"


def test_template_goes_at_once_with_users_that_do(api: ApiStack) -> None:
    api.apply(template("t") + sandbox_document("user", "t"))
    api.change("user", finalizers=())
    delete(api, "user")
    delete(api, "t", of="SandboxTemplate")
    assert api.store.get("SandboxTemplate", "default", "t") is None


def test_an_owner_of_an_unknown_kind_is_not_gone(api: ApiStack) -> None:
    api.apply(sandbox_document("a") + owned("b", "Sandbox/a"))
    foreign = {"kind": "OfALaterVersion", "name": "x", "uid": "u"}
    api.change("b", owner_references=(*api.sandbox("b").owner_references, foreign))
    delete(api, "a")
    assert going(api)["b"] is False
    assert api.sandbox("b").owner_references == (foreign,)


USER = Caller("ann", grants=(Grant(role="user", namespaces=("default",)),))
OPERATOR = Caller("olga", grants=(Grant(role="operator", namespaces=("default",)),))


def of_template(flag: str = "") -> str:
    text = f", blockOwnerDeletion: {flag}" if flag else ""
    return sandbox_document("b", metadata=f", ownerReferences: [{{kind: SandboxTemplate, name: t{text}}}]")


def blocking(api: ApiStack) -> Any:
    [reference] = api.sandbox("b").owner_references
    return reference.get("blockOwnerDeletion")


def test_blocking_a_deletion_needs_write_access_to_the_owner(api: ApiStack) -> None:
    api.apply(template("t"))
    with acting(USER) as refusal, pytest.raises(errors.Invalid, match="which you may not write; leave it out"):
        api.apply(of_template("true"))
    assert [access_request.verb for access_request, _ in refusal] == ["update"]
    with acting(USER) as refused_acting:
        api.apply(of_template())
    assert (blocking(api), refused_acting) == (False, [])
    with acting(OPERATOR):
        api.apply(of_template("true"))
    assert blocking(api) is True
    with acting(USER):
        assert api.apply(of_template("true")) == ["unchanged"], "what an operator gave, a user may keep"
        api.apply(of_template("false"))
    assert blocking(api) is False
    with acting(USER), pytest.raises(errors.Invalid, match="leave it out"):
        api.apply(of_template("true"))


def test_the_owner_waits_only_for_whom_it_has_to(api: ApiStack) -> None:
    api.apply(template("t"))
    with acting(USER):
        api.apply(of_template())
    api.change("b", finalizers=("example.com/mine",))
    delete(api, "t", "Foreground", of="SandboxTemplate")
    assert api.store.get("SandboxTemplate", "default", "t") is None
    assert going(api) == {"b": True}
