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
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness

MIB = 1 << 20
VOLUME = discover().by_word("vol")
CLAIM = {"name": "data", "mountPath": "/data", "size": "8Mi"}
SHARED = {"name": "shared", "mountPath": "/shared", "size": "8Mi"}
ADVICE = "use `volumeClaimTemplates`"


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def template(name: str = "t", **spec: Any) -> str:
    return document("SandboxTemplate", name, {"image": TINY, "command": ["sleep", "1000000"], **spec})


def pool(name: str = "warm", **spec: Any) -> str:
    return document("SandboxPool", name, {"templateRef": {"name": "t"}, "warmReplicas": 2, **spec})


def apply(house: LoopHarness, *documents: str) -> None:
    house.services.apply.apply([Source("test", "\n---\n".join(documents))])


def pooled(house: LoopHarness, **claim: Any) -> LoopHarness:
    apply(house, template(volumeClaimTemplates=[{**CLAIM, **claim}]), pool())
    house.settle()
    return house


def claimed(house: LoopHarness, name: str, **spec: Any) -> StoredObject:
    house.refer(name, "t", **spec)
    house.settle()
    harness = house.get(name)
    assert harness is not None
    return harness


def gone(house: LoopHarness, name: str) -> None:
    house.delete(name)
    house.settle()
    assert house.get(name) is None


def volume(house: LoopHarness, name: str) -> StoredObject:
    assert VOLUME is not None
    return house.services.objects.get(VOLUME, "default", name)


def listed(house: LoopHarness) -> dict[str, str]:
    assert VOLUME is not None
    return {stored.name: stored.status["phase"] for stored in house.services.objects.list(VOLUME, "default").objects}


def delete_volume(house: LoopHarness, name: str) -> StoredObject:
    assert VOLUME is not None
    return house.services.objects.delete(VOLUME, "default", name)


def conditions(house: LoopHarness, kind: str, name: str) -> dict[str, tuple[str, str]]:
    store = house.store.get(kind, "default", name)
    assert store is not None
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in store.status["conditions"]}


def put_behind(house: LoopHarness, text: str) -> None:
    """Store an object as a version without the rule would have: the template as it is then."""
    desired = json.loads(text)
    with house.store.transaction() as transaction:
        stored = transaction.get(desired["kind"], "default", desired["metadata"]["name"])
        assert stored is not None
        transaction.put(replace(stored, spec=desired["spec"], generation=stored.generation + 1))


def test_two_claims_of_one_pool_have_a_volume_each(house: LoopHarness) -> None:
    pooled(house)
    assert house.engine.volumes == {}, "a warm member is nobody's, and has none"
    warm = {name for names in house.ours().values() for name in names}
    boxes = [claimed(house, name) for name in ("a", "b")]
    assert [sandbox.status["launchType"] for sandbox in boxes] == ["Warm", "Warm"]
    assert house.engine.volumes == {("default", "data-a"): 8 * MIB, ("default", "data-b"): 8 * MIB}
    assert len(warm) == 2
    for stored in boxes:
        assert house.condition(stored.name, "Ready") == "True Running"
        bound = house.engine.box(house.container_name(stored.name)).mounts
        assert [mount.source for mount in bound] == [f"data-{stored.name}"]


def test_a_sandbox_without_a_pool_has_one_too(house: LoopHarness) -> None:
    house.apply("a", template={"volumeClaimTemplates": [CLAIM]})
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert house.engine.volumes == {("default", "data-a"): 8 * MIB}


def test_it_is_kept_for_the_next_of_that_name(house: LoopHarness) -> None:
    pooled(house)
    claimed(house, "a")
    gone(house, "a")
    assert listed(house) == {"data-a": "Released"}
    again = claimed(house, "a")
    assert again.status["launchType"] == "Warm"
    assert listed(house) == {"data-a": "Bound"}
    assert volume(house, "data-a").status["usedBy"] == [{"kind": "Sandbox", "name": "a"}]


def test_one_that_is_to_go_goes_with_its_sandbox_alone(house: LoopHarness) -> None:
    pooled(house, reclaimPolicy="Delete")
    claimed(house, "a")
    claimed(house, "b")
    assert volume(house, "data-a").spec == {"size": "8Mi", "reclaimPolicy": "Delete", "sandbox": "a"}
    gone(house, "a")
    assert listed(house) == {"data-b": "Bound"}


def test_two_sandboxes_never_come_to_one_volume_by_their_names(house: LoopHarness) -> None:
    """`a` of `b-c` and `a-b` of `c` have one name."""
    house.apply("b-c", template={"volumeClaimTemplates": [{**CLAIM, "name": "a"}]})
    house.settle()
    second = {**CLAIM, "name": "a-b", "reclaimPolicy": "Delete"}
    house.apply("c", template={"volumeClaimTemplates": [second]})
    for _ in range(4):
        house.run_pass()
    assert house.condition("c", "Ready") == "False MountRefused"
    gone(house, "c")
    assert listed(house) == {"a-b-c": "Bound"}, "the other's, and not to go with this one"


def test_its_own_volume_is_not_named_beside_it(house: LoopHarness) -> None:
    by_name = {**SHARED, "name": "data-a"}
    house.apply("a", template={"volumeClaimTemplates": [CLAIM], "volumes": [by_name]})
    house.settle()
    assert house.condition("a", "Accepted") == "False Refused"
    assert house.engine.volumes == {}


def test_members_hold_no_disk_and_claims_do(house: LoopHarness) -> None:
    apply(house, document("Quota", "q", {"hard": {"disk": "12Mi"}}))
    pooled(house)

    def used() -> str:
        quota = house.store.get("Quota", "default", "q")
        assert quota is not None
        return str(quota.status["used"]["disk"])

    assert used() == "0"
    claimed(house, "a")
    assert used() == "8Mi"
    claimed(house, "b")
    assert house.condition("b", "Scheduled") == "False QuotaExceeded"
    gone(house, "a")
    assert house.condition("b", "Ready") == "True Running"


def test_a_new_claim_template_recreates_nothing_that_runs(house: LoopHarness) -> None:
    apply(house, template(), pool())
    house.settle()
    claimed(house, "a")
    before = house.engine.box(house.container_name("a"))
    apply(house, template(volumeClaimTemplates=[CLAIM]))
    house.settle()
    now = house.engine.box(house.container_name("a"))
    assert (now.id, now.started_at) == (before.id, before.started_at)
    assert house.condition("a", "Outdated").startswith("True")


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
    house: LoopHarness, first: list[str], then: list[str], fields: list[str] | None
) -> None:
    apply(house, *first) if first else None
    with pytest.raises(errors.Invalid, match=ADVICE) as refusal:
        apply(house, *then)
    assert [cause["field"] for cause in refusal.value.causes] == (fields or ["spec.templateRef.name"])


def test_a_patch_does_not_get_around_it(house: LoopHarness) -> None:
    apply(house, template(), pool())
    kind = discover().by_word("sandboxtemplate")
    assert kind is not None
    with pytest.raises(errors.Invalid, match=ADVICE):
        house.services.patch.patch(kind, "default", "t", {"spec": {"volumes": [SHARED]}})


def test_what_can_only_be_read_may_be_shared(house: LoopHarness) -> None:
    apply(house, template(volumes=[{**SHARED, "readOnly": True}]), pool())
    house.settle()
    assert claimed(house, "a").status["launchType"] == "Warm"
    assert house.condition("a", "Ready") == "True Running"
    users = volume(house, "shared").status["usedBy"]
    assert [user["kind"] for user in users] == ["Sandbox", "SandboxTemplate", "SandboxPool"]


def test_a_stored_pool_that_shares_says_so_and_starts_nothing(house: LoopHarness) -> None:
    apply(house, template(), pool())
    house.settle()
    claimed(house, "before")
    put_behind(house, template(volumes=[SHARED]))
    house.settle()
    observed = conditions(house, "SandboxPool", "warm")
    assert [observed[entry] for entry in ("Accepted", "Ready", "Degraded")] == [
        ("False", "SharedVolume"),
        ("False", "SharedVolume"),
        ("True", "SharedVolume"),
    ]
    assert house.condition("before", "Ready") == "True Running"
    assert list(house.ours()) == [house.get("before").uid]  # type: ignore[union-attr]
    for policy in ("Prefer", "Require"):
        claimed(house, policy.lower(), poolPolicy=policy)
        assert house.condition(policy.lower(), "Ready") == "False SharedVolume"
    assert house.engine.volumes == {}
    apply(house, template(volumes=None, volumeClaimTemplates=[CLAIM]))
    house.settle()
    assert conditions(house, "SandboxPool", "warm")["Accepted"] == ("True", "Admitted")
    assert house.condition("require", "Ready") == "True Running"
    assert sorted(house.engine.volumes) == [("default", "data-prefer"), ("default", "data-require")]


def test_a_sandbox_starts_once_the_pool_that_shares_is_gone(house: LoopHarness) -> None:
    apply(house, template(), pool())
    put_behind(house, template(volumes=[SHARED]))
    claimed(house, "a")
    assert house.condition("a", "Ready") == "False SharedVolume"
    house.delete("warm", "sandboxpool")
    house.settle()
    assert house.condition("a", "Ready") == "True Running"


def test_one_in_use_is_not_deleted_and_all_users_are_named(house: LoopHarness) -> None:
    house.apply("a", template={"volumes": [SHARED]})
    house.apply("b", workspace={"volume": {"name": "shared", "size": "8Mi"}}, runState="Suspended")
    apply(house, template(volumes=[SHARED]))
    house.settle()
    with pytest.raises(errors.Conflict, match="sandbox a, sandbox b, sandboxtemplate t; delete or change those first"):
        delete_volume(house, "shared")
    assert listed(house) == {"shared": "Bound"}
    for name in ("a", "b"):
        gone(house, name)
    house.delete("t", "sandboxtemplate")
    assert listed(house) == {"shared": "Released"}
    assert delete_volume(house, "shared").name == "shared"
    assert house.engine.volumes == {}
    with pytest.raises(errors.NotFound):
        delete_volume(house, "shared")
    entries = [entry for entry in house.store.audit.entries() if entry.kind == "Volume"]
    assert [(entry.verb, entry.namespace, entry.name) for entry in entries] == [("delete", "default", "shared")]


def test_one_that_only_a_container_still_has_is_not_deleted(house: LoopHarness) -> None:
    """Its template names another by now; the container is as it was made."""
    apply(house, template(volumes=[SHARED]))
    claimed(house, "a")
    apply(house, template(volumes=[{**SHARED, "name": "other"}]))
    house.settle()
    assert house.condition("a", "Outdated").startswith("True")
    assert listed(house) == {"shared": "Bound"}
    with pytest.raises(errors.Conflict, match="still mounted in a container"):
        delete_volume(house, "shared")
    house.engine.kill(house.container_name("a"))
    house.settle()
    assert listed(house) == {"other": "Bound", "shared": "Released"}


def test_a_template_that_passes_to_claims_interrupts_nothing_that_runs(house: LoopHarness) -> None:
    """The way out that the refusal of a pool names: the same place, with a volume of its own from the next start on."""
    apply(house, template(volumes=[SHARED]))
    claimed(house, "a")
    before = house.engine.box(house.container_name("a"))
    apply(house, template(volumes=None, volumeClaimTemplates=[SHARED]), pool())
    house.settle()
    now = house.engine.box(house.container_name("a"))
    assert (now.id, now.started_at) == (before.id, before.started_at)
    assert [mount.source for mount in now.mounts] == ["shared"]
    assert (house.condition("a", "Ready"), house.condition("a", "Outdated")[:4]) == ("True Running", "True")
    assert claimed(house, "b").status["launchType"] == "Warm"
    assert ("default", "shared-b") in house.engine.volumes


def test_one_that_is_named_no_more_can_be_deleted(house: LoopHarness) -> None:
    house.apply("a", template={"volumeClaimTemplates": [CLAIM]}, lifecycle={"shutdownGracePeriodSeconds": 0})
    house.settle()
    with pytest.raises(errors.Conflict, match="sandbox a"):
        delete_volume(house, "data-a")
    house.apply("a", template={"volumeClaimTemplates": []}, lifecycle={"shutdownGracePeriodSeconds": 0})
    house.settle()
    assert delete_volume(house, "data-a").spec["sandbox"] == "a"
    assert listed(house) == {}


def test_one_that_is_to_go_goes_though_the_template_went_first(house: LoopHarness) -> None:
    apply(house, template(volumeClaimTemplates=[{**CLAIM, "reclaimPolicy": "Delete"}]))
    claimed(house, "a")
    house.delete("a")
    house.delete("t", "sandboxtemplate")
    house.settle()
    assert (house.get("a"), house.engine.volumes) == (None, {})
