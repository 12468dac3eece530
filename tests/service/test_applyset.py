"""Apply sets: who belongs to one, what pruning takes away, and all that it refuses."""

import pytest

from controller.kinds.common.apply_set import LABEL
from controller.kinds.common.owner_reference import IN_USE_FINALIZER
from controller.service import errors
from controller.service.objects.apply import Source
from controller.service.objects.apply_set import ApplySet
from tests.helpers_api import ApiStack

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


def applied(api: ApiStack, text: str, as_set: ApplySet = PRUNE, **options: object) -> list[str]:
    answer = api.services.apply.apply([Source("spec.yaml", text)], as_set=as_set, **options)  # type: ignore[arg-type]
    return [f"{entry.kind.name.lower()}/{entry.obj.name} {entry.result}" for entry in answer]


def test_plain_applies_keep_the_membership(api: ApiStack) -> None:
    assert applied(api, sandbox_document("a"), WEB) == ["sandbox/a created"]
    assert api.sandbox("a").labels == {LABEL: "web"}
    assert applied(api, sandbox_document("a"), WEB) == ["sandbox/a unchanged"]
    revision = api.store.revision()
    assert api.apply(sandbox_document("a")) == ["unchanged"]
    assert api.apply(sandbox_document("a", metadata=f", labels: {{{LABEL}: web}}")) == ["unchanged"]
    assert api.store.revision() == revision
    assert api.sandbox("a").last_applied["metadata"]["labels"] == {}  # type: ignore[index]


def test_what_is_there_already_becomes_a_member(api: ApiStack) -> None:
    api.apply(sandbox_document("a"))
    assert applied(api, sandbox_document("a"), WEB) == ["sandbox/a configured"]
    assert api.sandbox("a").generation == 1


def test_the_label_is_not_a_files_to_give(api: ApiStack) -> None:
    with pytest.raises(errors.Conflict, match=r"only `apply --applyset` puts objects into a set"):
        api.apply(sandbox_document("a", metadata=f", labels: {{{LABEL}: web}}"))


def test_members_of_other_sets_are_refused_unless_taken_over(api: ApiStack) -> None:
    applied(api, sandbox_document("a") + sandbox_document("b"), WEB)
    apply_set = ApplySet("other")
    with pytest.raises(errors.Conflict) as raised:
        applied(api, sandbox_document("a") + sandbox_document("b") + sandbox_document("c"), apply_set)
    assert [cause["line"] for cause in raised.value.causes] == [3, 8]
    assert "spec.yaml:3:18: metadata.name: sandbox/a belongs to apply set `web`" in str(raised.value)
    assert "--take-over" in str(raised.value)
    assert api.store.get("Sandbox", "default", "c") is None
    assert applied(api, sandbox_document("a"), ApplySet("other", take_over=True)) == ["sandbox/a configured"]
    assert applied(api, sandbox_document("b")) == ["sandbox/b unchanged"], "what was taken over is not pruned from here"


def test_prune_deletes_dropped_members_everywhere(api: ApiStack) -> None:
    applied(
        api,
        template("t")
        + sandbox_document("a", "t")
        + sandbox_document("b")
        + sandbox_document("c", metadata=", namespace: team"),
        WEB,
    )
    applied(api, sandbox_document("x"), ApplySet("other"))
    api.apply(sandbox_document("y"))
    woken = len(api.woken)
    revision = api.store.revision()
    assert applied(api, sandbox_document("b")) == [
        "sandbox/b unchanged",
        "sandbox/a pruned",
        "sandbox/c pruned",
        "sandboxtemplate/t pruned",
    ]
    assert api.sandbox("a").deleted_at == api.sandbox("c", "team").deleted_at == api.clock.now()
    sandbox_template = api.store.get("SandboxTemplate", "default", "t")
    assert sandbox_template is not None
    assert (sandbox_template.deleted_at, sandbox_template.finalizers) == (api.clock.now(), (IN_USE_FINALIZER,)), (
        "it goes with its user"
    )
    assert [api.sandbox(name).deleted_at for name in "bxy"] == [None] * 3
    assert (api.store.revision(), len(api.woken)) == (revision + 3, woken + 1)
    assert applied(api, sandbox_document("b")) == ["sandbox/b unchanged"], "what is going already is not pruned again"


def test_a_dry_run_shows_it_and_writes_nothing(api: ApiStack) -> None:
    applied(api, template("t") + sandbox_document("a", "t"), WEB)
    revision = api.store.revision()
    messages = applied(api, sandbox_document("b"), dry_run=True)
    assert messages == ["sandbox/b created", "sandbox/a pruned", "sandboxtemplate/t pruned"]
    assert api.store.revision() == revision
    assert api.sandbox("a").deleted_at is None
    diff = api.services.diff.diff([Source("spec.yaml", sandbox_document("b"))], as_set=PRUNE)
    assert [difference.result for difference in diff] == ["created", "pruned", "pruned"]
    assert api.store.revision() == revision


def test_a_refused_prune_applies_nothing(api: ApiStack) -> None:
    applied(api, template("t") + template("u") + sandbox_document("a", "t"), WEB)
    api.apply(sandbox_document("outside", "u"))
    revision = api.store.revision()
    with pytest.raises(errors.Conflict) as raised:
        applied(api, sandbox_document("a", "t") + sandbox_document("new"))
    assert "sandboxtemplate `t` is used by sandbox a" in str(raised.value)
    assert "sandboxtemplate `u` is used by sandbox outside" in str(raised.value)
    assert api.store.revision() == revision
    api.services.objects.delete(api.services.registry.by_name("Sandbox"), "default", "outside")  # type: ignore[arg-type]
    assert applied(api, template("v") + sandbox_document("a", "v"))[-2:] == [
        "sandboxtemplate/t pruned",
        "sandboxtemplate/u pruned",
    ]


def test_prune_refusals_come_with_the_documents_problems(api: ApiStack) -> None:
    applied(api, template("t") + sandbox_document("a", "t") + sandbox_document("b"), WEB)
    api.apply(sandbox_document("outside", "t"))
    revision = api.store.revision()
    api.refusals.append(("spec.resources", "too much"))
    with pytest.raises(errors.Invalid) as raised:
        applied(
            api,
            sandbox_document("b")
            + sandbox_document("new", metadata=", ownerReferences: [{kind: Sandbox, name: nobody}]"),
        )
    api.refusals.clear()
    message = str(raised.value)
    assert message.count("spec.resources: too much") == 2
    assert "ownerReferences" in message
    assert "can't be pruned: sandboxtemplate `t` is used by sandbox outside" in message
    assert (api.store.revision(), api.store.get("Sandbox", "default", "new")) == (revision, None)
    with pytest.raises(errors.Invalid) as raised:
        applied(api, sandbox_document("b").replace("spec:", "spec:\n  frobnicate: 1"))
    assert "pruned" not in str(raised.value), "what would be kept is not known"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_empty_files_delete_a_set_only_with_allow_empty(api: ApiStack, text: str) -> None:
    applied(api, sandbox_document("a"), WEB)
    with pytest.raises(errors.BadRequest, match=r"would delete every object of apply set `web`.*--allow-empty"):
        applied(api, text)
    assert api.sandbox("a").deleted_at is None
    assert applied(api, text, ApplySet("web", prune=True, allow_empty=True)) == ["sandbox/a pruned"]


@pytest.mark.parametrize(
    ("as_set", "words"),
    [
        (ApplySet(prune=True), "need a set"),
        (ApplySet(take_over=True), "need a set"),
        (ApplySet("Web Shop", prune=True), "not a valid apply set name"),
        (ApplySet("web", allow_empty=True), "only for pruning"),
    ],
)
def test_exclusive_options_are_refused(api: ApiStack, as_set: ApplySet, words: str) -> None:
    with pytest.raises(errors.BadRequest, match=words):
        applied(api, sandbox_document("a"), as_set)


def test_a_kept_object_is_never_pruned_with_its_owner(api: ApiStack) -> None:
    owner = ", ownerReferences: [{kind: Sandbox, name: a}]"
    applied(
        api,
        sandbox_document("a") + sandbox_document("b", metadata=owner) + sandbox_document("c", metadata=owner),
        WEB,
    )
    with pytest.raises(errors.Conflict, match=r"sandbox/b|metadata.name: would be deleted with its owner"):
        applied(api, sandbox_document("b", metadata=owner))
    assert api.sandbox("a").deleted_at is None
    assert applied(api, sandbox_document("b")) == ["sandbox/b configured", "sandbox/a pruned", "sandbox/c pruned"]
