"""Volumes of a sandbox's own (volumeClaimTemplates), in pools and without; listed, and deleted; on both stores."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.registry import discover
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness

MIB = 1 << 20
VOLUME = discover().by_word("vol")
CLAIM = {"name": "data", "mountPath": "/data", "size": "8Mi"}
SHARED = {"name": "shared", "mountPath": "/shared", "size": "8Mi"}
ADVICE = "use `volumeClaimTemplates`"


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def template(name: str = "t", **spec: Any) -> str:
    return document("SandboxTemplate", name, {"image": TINY, "command": ["sleep", "1000000"], **spec})


def pool(name: str = "warm", **spec: Any) -> str:
    return document("SandboxPool", name, {"templateRef": {"name": "t"}, "warmReplicas": 2, **spec})


def apply(harness: LoopHarness, *documents: str) -> None:
    harness.services.apply.apply([Source("test", "\n---\n".join(documents))])


def pooled(harness: LoopHarness, **claim: Any) -> LoopHarness:
    apply(harness, template(volumeClaimTemplates=[{**CLAIM, **claim}]), pool())
    harness.settle()
    return harness


def claimed(harness: LoopHarness, name: str, **spec: Any) -> StoredObject:
    harness.refer(name, "t", **spec)
    harness.settle()
    sandbox = harness.get(name)
    assert sandbox is not None
    return sandbox


def gone(harness: LoopHarness, name: str) -> None:
    harness.delete(name)
    harness.settle()
    assert harness.get(name) is None


def volume(harness: LoopHarness, name: str) -> StoredObject:
    assert VOLUME is not None
    return harness.services.objects.get(VOLUME, "default", name)


def listed(harness: LoopHarness) -> dict[str, str]:
    assert VOLUME is not None
    return {stored.name: stored.status["phase"] for stored in harness.services.objects.list(VOLUME, "default").objects}


def delete_volume(harness: LoopHarness, name: str) -> StoredObject:
    assert VOLUME is not None
    return harness.services.objects.delete(VOLUME, "default", name)


def conditions(harness: LoopHarness, kind: str, name: str) -> dict[str, tuple[str, str]]:
    obj = harness.store.get(kind, "default", name)
    assert obj is not None
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in obj.status["conditions"]}


def put_behind(harness: LoopHarness, text: str) -> None:
    """Store an object as a version without the rule would have: the template as it is then."""
    desired = json.loads(text)
    with harness.store.transaction() as transaction:
        stored = transaction.get(desired["kind"], "default", desired["metadata"]["name"])
        assert stored is not None
        transaction.put(replace(stored, spec=desired["spec"], generation=stored.generation + 1))


def test_two_claims_of_one_pool_have_a_volume_each(harness: LoopHarness) -> None:
    pooled(harness)
    assert harness.engine.volumes == {}, "a warm member is nobody's, and has none"
    warm = {name for names in harness.ours().values() for name in names}
    sandboxes = [claimed(harness, name) for name in ("a", "b")]
    assert [sandbox.status["launchType"] for sandbox in sandboxes] == ["Warm", "Warm"]
    assert harness.engine.volumes == {("default", "data-a"): 8 * MIB, ("default", "data-b"): 8 * MIB}
    assert len(warm) == 2
    for stored in sandboxes:
        assert harness.condition(stored.name, "Ready") == "True Running"
        bound = harness.engine.container(harness.container_name(stored.name)).mounts
        assert [mount.source for mount in bound] == [f"data-{stored.name}"]


def test_a_sandbox_without_a_pool_has_one_too(harness: LoopHarness) -> None:
    harness.apply("a", template={"volumeClaimTemplates": [CLAIM]})
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    assert harness.engine.volumes == {("default", "data-a"): 8 * MIB}


def test_it_is_kept_for_the_next_of_that_name(harness: LoopHarness) -> None:
    pooled(harness)
    claimed(harness, "a")
    gone(harness, "a")
    assert listed(harness) == {"data-a": "Released"}
    again = claimed(harness, "a")
    assert again.status["launchType"] == "Warm"
    assert listed(harness) == {"data-a": "Bound"}
    assert volume(harness, "data-a").status["usedBy"] == [{"kind": "Sandbox", "name": "a"}]


def test_one_that_is_to_go_goes_with_its_sandbox_alone(harness: LoopHarness) -> None:
    pooled(harness, reclaimPolicy="Delete")
    claimed(harness, "a")
    claimed(harness, "b")
    assert volume(harness, "data-a").spec == {"size": "8Mi", "reclaimPolicy": "Delete", "sandbox": "a"}
    gone(harness, "a")
    assert listed(harness) == {"data-b": "Bound"}


def test_two_sandboxes_never_come_to_one_volume_by_their_names(harness: LoopHarness) -> None:
    """`a` of `b-c` and `a-b` of `c` have one name."""
    harness.apply("b-c", template={"volumeClaimTemplates": [{**CLAIM, "name": "a"}]})
    harness.settle()
    second = {**CLAIM, "name": "a-b", "reclaimPolicy": "Delete"}
    harness.apply("c", template={"volumeClaimTemplates": [second]})
    for _ in range(4):
        harness.run_pass()
    assert harness.condition("c", "Ready") == "False MountRefused"
    gone(harness, "c")
    assert listed(harness) == {"a-b-c": "Bound"}, "the other's, and not to go with this one"


def test_its_own_volume_is_not_named_beside_it(harness: LoopHarness) -> None:
    by_name = {**SHARED, "name": "data-a"}
    harness.apply("a", template={"volumeClaimTemplates": [CLAIM], "volumes": [by_name]})
    harness.settle()
    assert harness.condition("a", "Accepted") == "False Refused"
    assert harness.engine.volumes == {}


def test_members_hold_no_disk_and_claims_do(harness: LoopHarness) -> None:
    apply(harness, document("Quota", "q", {"hard": {"disk": "12Mi"}}))
    pooled(harness)

    def used() -> str:
        quota = harness.store.get("Quota", "default", "q")
        assert quota is not None
        return str(quota.status["used"]["disk"])

    assert used() == "0"
    claimed(harness, "a")
    assert used() == "8Mi"
    claimed(harness, "b")
    assert harness.condition("b", "Scheduled") == "False QuotaExceeded"
    gone(harness, "a")
    assert harness.condition("b", "Ready") == "True Running"


def test_a_new_claim_template_recreates_nothing_that_runs(harness: LoopHarness) -> None:
    apply(harness, template(), pool())
    harness.settle()
    claimed(harness, "a")
    before = harness.engine.container(harness.container_name("a"))
    apply(harness, template(volumeClaimTemplates=[CLAIM]))
    harness.settle()
    now = harness.engine.container(harness.container_name("a"))
    assert (now.id, now.started_at) == (before.id, before.started_at)
    assert harness.condition("a", "Outdated").startswith("True")


@pytest.mark.parametrize(
    ("first", "then", "fields"),
    [
        ([template(volumes=[SHARED])], [pool()], ["spec.templateRef.name"]),
        ([template(), pool()], [template(volumes=[CLAIM, SHARED])], ["spec.volumes[0]", "spec.volumes[1]"]),
        ([pool()], [template(volumes=[SHARED])], ["spec.volumes[0]"]),
        ([], [pool(), template(volumes=[SHARED])], ["spec.templateRef.name", "spec.volumes[0]"]),
        ([template("other"), pool(templateRef={"name": "other"}), template(volumes=[SHARED])], [pool()], None),
    ],
    ids=["pool-later", "template-changed", "template-later", "in-one", "pool-changed"],
)
def test_a_pool_never_has_a_template_whose_volumes_are_shared(
    harness: LoopHarness, first: list[str], then: list[str], fields: list[str] | None
) -> None:
    apply(harness, *first) if first else None
    with pytest.raises(errors.Invalid, match=ADVICE) as refusal:
        apply(harness, *then)
    assert [cause["field"] for cause in refusal.value.causes] == (fields or ["spec.templateRef.name"])


def test_a_patch_does_not_get_around_it(harness: LoopHarness) -> None:
    apply(harness, template(), pool())
    kind = discover().by_word("sandboxtemplate")
    assert kind is not None
    with pytest.raises(errors.Invalid, match=ADVICE):
        harness.services.patch.patch(kind, "default", "t", {"spec": {"volumes": [SHARED]}})


def test_what_can_only_be_read_may_be_shared(harness: LoopHarness) -> None:
    apply(harness, template(volumes=[{**SHARED, "readOnly": True}]), pool())
    harness.settle()
    assert claimed(harness, "a").status["launchType"] == "Warm"
    assert harness.condition("a", "Ready") == "True Running"
    users = volume(harness, "shared").status["usedBy"]
    assert [user["kind"] for user in users] == ["Sandbox", "SandboxTemplate", "SandboxPool"]


def test_a_stored_pool_that_shares_says_so_and_starts_nothing(harness: LoopHarness) -> None:
    apply(harness, template(), pool())
    harness.settle()
    claimed(harness, "before")
    put_behind(harness, template(volumes=[SHARED]))
    harness.settle()
    observed = conditions(harness, "SandboxPool", "warm")
    assert [observed[entry] for entry in ("Accepted", "Ready", "Degraded")] == [
        ("False", "SharedVolume"),
        ("False", "SharedVolume"),
        ("True", "SharedVolume"),
    ]
    assert harness.condition("before", "Ready") == "True Running"
    assert list(harness.ours()) == [harness.get("before").uid]  # type: ignore[union-attr]
    for policy in ("Prefer", "Require"):
        claimed(harness, policy.lower(), poolPolicy=policy)
        assert harness.condition(policy.lower(), "Ready") == "False SharedVolume"
    assert harness.engine.volumes == {}
    apply(harness, template(volumes=None, volumeClaimTemplates=[CLAIM]))
    harness.settle()
    assert conditions(harness, "SandboxPool", "warm")["Accepted"] == ("True", "Admitted")
    assert harness.condition("require", "Ready") == "True Running"
    assert sorted(harness.engine.volumes) == [("default", "data-prefer"), ("default", "data-require")]


def test_a_sandbox_starts_once_the_pool_that_shares_is_gone(harness: LoopHarness) -> None:
    apply(harness, template(), pool())
    put_behind(harness, template(volumes=[SHARED]))
    claimed(harness, "a")
    assert harness.condition("a", "Ready") == "False SharedVolume"
    harness.delete("warm", "sandboxpool")
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"


def test_one_in_use_is_not_deleted_and_all_users_are_named(harness: LoopHarness) -> None:
    harness.apply("a", template={"volumes": [SHARED]})
    harness.apply("b", workspace={"volume": {"name": "shared", "size": "8Mi"}}, runState="Suspended")
    apply(harness, template(volumes=[SHARED]))
    harness.settle()
    with pytest.raises(errors.Conflict, match="sandbox a, sandbox b, sandboxtemplate t; delete or change those first"):
        delete_volume(harness, "shared")
    assert listed(harness) == {"shared": "Bound"}
    for name in ("a", "b"):
        gone(harness, name)
    harness.delete("t", "sandboxtemplate")
    assert listed(harness) == {"shared": "Released"}
    assert delete_volume(harness, "shared").name == "shared"
    assert harness.engine.volumes == {}
    with pytest.raises(errors.NotFound):
        delete_volume(harness, "shared")
    entries = [entry for entry in harness.store.audit.entries() if entry.kind == "Volume"]
    assert [(entry.verb, entry.namespace, entry.name) for entry in entries] == [("delete", "default", "shared")]


def test_one_that_only_a_container_still_has_is_not_deleted(harness: LoopHarness) -> None:
    """Its template names another by now; the container is as it was made."""
    apply(harness, template(volumes=[SHARED]))
    claimed(harness, "a")
    apply(harness, template(volumes=[{**SHARED, "name": "other"}]))
    harness.settle()
    assert harness.condition("a", "Outdated").startswith("True")
    assert listed(harness) == {"shared": "Bound"}
    with pytest.raises(errors.Conflict, match="still mounted in a container"):
        delete_volume(harness, "shared")
    harness.engine.kill(harness.container_name("a"))
    harness.settle()
    assert listed(harness) == {"other": "Bound", "shared": "Released"}


def test_a_template_that_passes_to_claims_interrupts_nothing_that_runs(harness: LoopHarness) -> None:
    """The way out that the refusal of a pool names: the same place, with a volume of its own from the next start on."""
    apply(harness, template(volumes=[SHARED]))
    claimed(harness, "a")
    before = harness.engine.container(harness.container_name("a"))
    apply(harness, template(volumes=None, volumeClaimTemplates=[SHARED]), pool())
    harness.settle()
    now = harness.engine.container(harness.container_name("a"))
    assert (now.id, now.started_at) == (before.id, before.started_at)
    assert [mount.source for mount in now.mounts] == ["shared"]
    assert (harness.condition("a", "Ready"), harness.condition("a", "Outdated")[:4]) == ("True Running", "True")
    assert claimed(harness, "b").status["launchType"] == "Warm"
    assert ("default", "shared-b") in harness.engine.volumes


def test_one_that_is_named_no_more_can_be_deleted(harness: LoopHarness) -> None:
    harness.apply("a", template={"volumeClaimTemplates": [CLAIM]}, lifecycle={"shutdownGracePeriodSeconds": 0})
    harness.settle()
    with pytest.raises(errors.Conflict, match="sandbox a"):
        delete_volume(harness, "data-a")
    harness.apply("a", template={"volumeClaimTemplates": []}, lifecycle={"shutdownGracePeriodSeconds": 0})
    harness.settle()
    assert delete_volume(harness, "data-a").spec["sandbox"] == "a"
    assert listed(harness) == {}


def test_one_that_is_to_go_goes_though_the_template_went_first(harness: LoopHarness) -> None:
    apply(harness, template(volumeClaimTemplates=[{**CLAIM, "reclaimPolicy": "Delete"}]))
    claimed(harness, "a")
    harness.delete("a")
    harness.delete("t", "sandboxtemplate")
    harness.settle()
    assert (harness.get("a"), harness.engine.volumes) == (None, {})
