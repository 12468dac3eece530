"""Apply sets: who belongs to one, what pruning takes away, and all that it refuses."""

import pytest

from controller.kinds.common.apply_set import LABEL
from controller.kinds.common.owner_reference import IN_USE_FINALIZER
from controller.service import errors
from controller.service.objects.apply import Source
from controller.service.objects.apply_set import ApplySet
from tests.helpers_api import World

WEB, PRUNE = ApplySet("web"), ApplySet("web", prune=True)


def template(name: str) -> str:
    return f"""\
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {{name: {name}}}
spec: {{image: "tiny:1"}}
---
"""


def sandbox_document(name: str, refers: str = "", metadata: str = "") -> str:
    what = f"templateRef: {{name: {refers}}}" if refers else 'template: {image: "tiny:1"}'
    return f"""\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: {name}{metadata}}}
spec: {{{what}}}
---
"""


def applied(world: World, text: str, as_set: ApplySet = PRUNE, **options: object) -> list[str]:
    answer = world.services.apply.apply([Source("spec.yaml", text)], as_set=as_set, **options)  # type: ignore[arg-type]
    return [f"{entry.kind.name.lower()}/{entry.obj.name} {entry.result}" for entry in answer]


def test_plain_applies_keep_the_membership(world: World) -> None:
    assert applied(world, sandbox_document("a"), WEB) == ["sandbox/a created"]
    assert world.sandbox("a").labels == {LABEL: "web"}
    assert applied(world, sandbox_document("a"), WEB) == ["sandbox/a unchanged"]
    revision = world.store.revision()
    assert world.apply(sandbox_document("a")) == ["unchanged"]
    assert world.apply(sandbox_document("a", metadata=f", labels: {{{LABEL}: web}}")) == ["unchanged"]
    assert world.store.revision() == revision
    assert world.sandbox("a").last_applied["metadata"]["labels"] == {}  # type: ignore[index]


def test_what_is_there_already_becomes_a_member(world: World) -> None:
    world.apply(sandbox_document("a"))
    assert applied(world, sandbox_document("a"), WEB) == ["sandbox/a configured"]
    assert world.sandbox("a").generation == 1


def test_the_label_is_not_a_files_to_give(world: World) -> None:
    with pytest.raises(errors.Conflict, match=r"only `apply --applyset` puts objects into a set"):
        world.apply(sandbox_document("a", metadata=f", labels: {{{LABEL}: web}}"))


def test_members_of_other_sets_are_refused_unless_taken_over(world: World) -> None:
    applied(world, sandbox_document("a") + sandbox_document("b"), WEB)
    apply_set = ApplySet("other")
    with pytest.raises(errors.Conflict) as raised:
        applied(world, sandbox_document("a") + sandbox_document("b") + sandbox_document("c"), apply_set)
    assert [cause["line"] for cause in raised.value.causes] == [3, 8]
    assert "spec.yaml:3:18: metadata.name: sandbox/a belongs to apply set `web`" in str(raised.value)
    assert "--take-over" in str(raised.value)
    assert world.store.get("Sandbox", "default", "c") is None
    assert applied(world, sandbox_document("a"), ApplySet("other", take_over=True)) == ["sandbox/a configured"]
    assert applied(world, sandbox_document("b")) == ["sandbox/b unchanged"], (
        "what was taken over is not pruned from here"
    )


def test_prune_deletes_dropped_members_everywhere(world: World) -> None:
    applied(
        world,
        template("t")
        + sandbox_document("a", "t")
        + sandbox_document("b")
        + sandbox_document("c", metadata=", namespace: team"),
        WEB,
    )
    applied(world, sandbox_document("x"), ApplySet("other"))
    world.apply(sandbox_document("y"))
    woken = len(world.woken)
    revision = world.store.revision()
    assert applied(world, sandbox_document("b")) == [
        "sandbox/b unchanged",
        "sandbox/a pruned",
        "sandbox/c pruned",
        "sandboxtemplate/t pruned",
    ]
    assert world.sandbox("a").deleted_at == world.sandbox("c", "team").deleted_at == world.clock.now()
    sandbox_template = world.store.get("SandboxTemplate", "default", "t")
    assert sandbox_template is not None
    assert (sandbox_template.deleted_at, sandbox_template.finalizers) == (world.clock.now(), (IN_USE_FINALIZER,)), (
        "it goes with its user"
    )
    assert [world.sandbox(name).deleted_at for name in "bxy"] == [None] * 3
    assert (world.store.revision(), len(world.woken)) == (revision + 3, woken + 1)
    assert applied(world, sandbox_document("b")) == ["sandbox/b unchanged"], "what is going already is not pruned again"


def test_a_dry_run_shows_it_and_writes_nothing(world: World) -> None:
    applied(world, template("t") + sandbox_document("a", "t"), WEB)
    revision = world.store.revision()
    messages = applied(world, sandbox_document("b"), dry_run=True)
    assert messages == ["sandbox/b created", "sandbox/a pruned", "sandboxtemplate/t pruned"]
    assert world.store.revision() == revision
    assert world.sandbox("a").deleted_at is None
    diff = world.services.diff.diff([Source("spec.yaml", sandbox_document("b"))], as_set=PRUNE)
    assert [difference.result for difference in diff] == ["created", "pruned", "pruned"]
    assert world.store.revision() == revision


def test_a_refused_prune_applies_nothing(world: World) -> None:
    applied(world, template("t") + template("u") + sandbox_document("a", "t"), WEB)
    world.apply(sandbox_document("outside", "u"))
    revision = world.store.revision()
    with pytest.raises(errors.Conflict) as raised:
        applied(world, sandbox_document("a", "t") + sandbox_document("new"))
    assert "sandboxtemplate `t` is used by sandbox a" in str(raised.value)
    assert "sandboxtemplate `u` is used by sandbox outside" in str(raised.value)
    assert world.store.revision() == revision
    world.services.objects.delete(world.services.registry.by_name("Sandbox"), "default", "outside")  # type: ignore[arg-type]
    assert applied(world, template("v") + sandbox_document("a", "v"))[-2:] == [
        "sandboxtemplate/t pruned",
        "sandboxtemplate/u pruned",
    ]


def test_prune_refusals_come_with_the_documents_problems(world: World) -> None:
    applied(world, template("t") + sandbox_document("a", "t") + sandbox_document("b"), WEB)
    world.apply(sandbox_document("outside", "t"))
    revision = world.store.revision()
    world.refusals.append(("spec.resources", "too much"))
    with pytest.raises(errors.Invalid) as raised:
        applied(
            world,
            sandbox_document("b")
            + sandbox_document("new", metadata=", ownerReferences: [{kind: Sandbox, name: nobody}]"),
        )
    world.refusals.clear()
    message = str(raised.value)
    assert message.count("spec.resources: too much") == 2
    assert "ownerReferences" in message
    assert "can't be pruned: sandboxtemplate `t` is used by sandbox outside" in message
    assert (world.store.revision(), world.store.get("Sandbox", "default", "new")) == (revision, None)
    with pytest.raises(errors.Invalid) as raised:
        applied(world, sandbox_document("b").replace("spec:", "spec:\n  frobnicate: 1"))
    assert "pruned" not in str(raised.value), "what would be kept is not known"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_empty_files_delete_a_set_only_with_allow_empty(world: World, text: str) -> None:
    applied(world, sandbox_document("a"), WEB)
    with pytest.raises(errors.BadRequest, match=r"would delete every object of apply set `web`.*--allow-empty"):
        applied(world, text)
    assert world.sandbox("a").deleted_at is None
    assert applied(world, text, ApplySet("web", prune=True, allow_empty=True)) == ["sandbox/a pruned"]


@pytest.mark.parametrize(
    ("as_set", "words"),
    [
        (ApplySet(prune=True), "need a set"),
        (ApplySet(take_over=True), "need a set"),
        (ApplySet("Web Shop", prune=True), "not a valid apply set name"),
        (ApplySet("web", allow_empty=True), "only for pruning"),
    ],
)
def test_exclusive_options_are_refused(world: World, as_set: ApplySet, words: str) -> None:
    with pytest.raises(errors.BadRequest, match=words):
        applied(world, sandbox_document("a"), as_set)


def test_a_kept_object_is_never_pruned_with_its_owner(world: World) -> None:
    owner = ", ownerReferences: [{kind: Sandbox, name: a}]"
    applied(
        world,
        sandbox_document("a") + sandbox_document("b", metadata=owner) + sandbox_document("c", metadata=owner),
        WEB,
    )
    with pytest.raises(errors.Conflict, match=r"sandbox/b|metadata.name: would be deleted with its owner"):
        applied(world, sandbox_document("b", metadata=owner))
    assert world.sandbox("a").deleted_at is None
    assert applied(world, sandbox_document("b")) == ["sandbox/b configured", "sandbox/a pruned", "sandbox/c pruned"]
