"""Limits of a namespace's stored objects: objects by number, annotations by size; and a sandbox's highest priority."""

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.registry import discover
from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, house

__all__ = ["house"]
KIB = 1 << 10


def document(kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> str:
    about = {"name": name, **metadata}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": about, "spec": spec or {}})


def apply(house: LoopHarness, *documents: str) -> None:
    house.services.apply.apply([Source("test", text) for text in documents])


def template(name: str, **metadata: Any) -> str:
    return document("SandboxTemplate", name, {"image": TINY}, **metadata)


def stored(house: LoopHarness) -> int:
    kinds = [kind.name for kind in discover() if not kind.read_only]
    return sum(len(house.store.list(kind, "default")[0]) for kind in kinds)


@pytest.fixture
def small(house: LoopHarness) -> LoopHarness:
    house.most_objects = 3
    house.daemon()
    return house


def test_a_namespace_without_a_bound_of_its_own_has_the_settings(small: LoopHarness) -> None:
    apply(small, template("a"), template("b"))
    small.apply("box")
    with pytest.raises(errors.Invalid, match="namespace `default` is full: it has 3 of at most 3 objects") as refusal:
        small.apply("more")
    assert "objects_per_namespace in the daemon's settings" in str(refusal.value)
    assert "raise `hard.objects` of its Quota" in str(refusal.value)
    with pytest.raises(errors.Invalid, match="is full"):
        small.services.write.create(discover().by_name("SandboxTemplate"), "default", template("c"))  # type: ignore[arg-type]
    apply(small, template("a", labels={"x": "y"}))
    apply(small, template("elsewhere", namespace="other"))
    small.delete("a", "sandboxtemplate")
    apply(small, template("c"))
    assert stored(small) == 3


def test_all_of_one_apply_count_and_those_beyond_are_named(small: LoopHarness) -> None:
    apply(small, template("a"))
    with pytest.raises(errors.Invalid) as refusal:
        apply(small, *[template(f"new-{number}") for number in range(4)])
    assert len(refusal.value.causes) == 2
    assert stored(small) == 1
    apply(small, *[template(f"new-{number}") for number in range(2)])
    assert stored(small) == 3


def test_a_quota_raises_it_and_has_a_place_in_a_full_namespace(small: LoopHarness) -> None:
    apply(small, *[template(f"new-{number}") for number in range(3)])
    apply(small, document("Quota", "main", {"hard": {"objects": 5}}))
    apply(small, template("fits"))
    with pytest.raises(errors.Invalid, match=r"it has 5 of at most 5 objects \(quota default/main\)"):
        apply(small, template("more"))
    apply(small, document("Quota", "main", {"hard": {"objects": 2}}))
    apply(small, template("fits", labels={"still": "changed"}))
    small.settle()
    assert stored(small) == 5, "nothing goes because a bound was lowered"


def test_a_host_quota_has_no_objects(house: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"spec.hard.objects: is counted in each namespace; write it in a Quota"):
        apply(house, document("HostQuota", "host", {"hard": {"objects": 5}}))


def annotated(name: str, kib: int, **metadata: Any) -> str:
    return template(name, annotations={"example.org/note": "x" * kib * KIB}, **metadata)


def test_annotations_of_a_namespace_are_bounded_together(house: LoopHarness) -> None:
    house.most_annotation_bytes = 100 * KIB
    house.daemon()
    apply(house, annotated("a", 40), annotated("b", 40), annotated("elsewhere", 90, namespace="other"))
    with pytest.raises(errors.Invalid, match=r"metadata.annotations: the .* of namespace `default`") as refusal:
        apply(house, annotated("c", 40))
    assert "annotations_per_namespace_bytes in the daemon's settings" in str(refusal.value)
    assert "raise `hard.annotations` of its Quota" in str(refusal.value)
    with pytest.raises(errors.Invalid, match="annotations"):
        apply(house, annotated("c", 15), annotated("d", 15))
    with pytest.raises(errors.Invalid, match="annotations"):
        apply(house, annotated("a", 80))
    apply(house, annotated("a", 10), annotated("c", 40), annotated("small", 3))


def test_a_quota_bounds_annotations(house: LoopHarness) -> None:
    apply(house, annotated("a", 40))
    apply(house, document("Quota", "main", {"hard": {"annotations": "30Ki"}}))
    with pytest.raises(errors.Invalid, match=r"would have .* of at most 30Ki \(quota default/main\)"):
        apply(house, annotated("b", 20))
    apply(house, annotated("a", 35))
    with pytest.raises(errors.Invalid, match=r"spec.hard.annotations: is counted in each namespace"):
        apply(house, document("HostQuota", "host", {"hard": {"annotations": "1Mi"}}))


@pytest.mark.parametrize("kind", ["Quota", "HostQuota"])
def test_a_quota_bounds_weight_and_priority_of_one_sandbox(house: LoopHarness, kind: str) -> None:
    name = "host" if kind == "HostQuota" else "main"
    house.apply("older", resources={"cpuShares": 4096}, priority=100)
    house.settle()
    apply(house, document(kind, name, {"perSandbox": {"cpuShares": 2048, "priority": 10}}))
    with pytest.raises(errors.Invalid, match=r"spec.resources.cpuShares: 2049 is more than .* allows one sandbox"):
        house.apply("a", resources={"cpuShares": 2049})
    with pytest.raises(errors.Invalid, match=r"spec.resources.cpuShares: 262144 is more"):
        house.apply("a", template={"resources": {"cpuShares": 262144}})
    with pytest.raises(errors.Invalid, match=r"spec.priority: 11 is more than .* allows one sandbox \(10\); lower it"):
        house.apply("a", priority=11)
    house.apply("a", resources={"cpuShares": 2048}, priority=10)
    house.apply_template("t", image=TINY)
    with pytest.raises(errors.Invalid, match=r"spec.priority: 11 is more"):
        apply_pool(house, priority=11)
    apply_pool(house, priority=10)
    house.settle()
    assert house.condition("older", "Ready") == "True Running", "what was there before goes on"


def quota_status(house: LoopHarness) -> dict[str, Any]:
    quota = house.store.get("Quota", "default", "main")
    assert quota is not None
    return dict(quota.status)


def test_a_quota_shows_how_much_is_stored(house: LoopHarness) -> None:
    apply(house, document("Quota", "main", {"hard": {"objects": 3}}), template("a"))
    house.settle()
    assert (quota_status(house)["used"]["objects"], quota_status(house)["hard"]["objects"]) == ("2", "3")
    house.apply("box")
    house.settle()
    assert quota_status(house)["used"]["objects"] == "3"
    house.daemon()
    apply(house, document("Quota", "main", {"hard": {"objects": 1}}))
    house.settle()
    [exceeded] = quota_status(house)["conditions"]
    assert (exceeded["status"], exceeded["reason"]) == ("True", "HardLowered")
    assert "objects 3 of 1" in exceeded["message"]
    house.delete("box")
    house.delete("a", "sandboxtemplate")
    house.settle()
    assert quota_status(house)["used"]["objects"] == "1"
    [exceeded] = quota_status(house)["conditions"]
    assert (exceeded["status"], exceeded["reason"]) == ("False", "WithinHard")
    apply(house, document("HostQuota", "host", {"hard": {"sandboxes": 5}}))
    house.settle()
    [host] = house.store.list("HostQuota")[0]
    assert "objects" not in host.status["used"]


def test_older_sandboxes_above_a_bound_run_on_and_none_starts(house: LoopHarness) -> None:
    for name in ("runs", "rests"):
        house.apply(name, resources={"cpuShares": 4096}, priority=100)
    house.settle()
    house.apply("rests", resources={"cpuShares": 4096}, priority=100, runState="Suspended")
    house.settle()
    apply(house, document("Quota", "main", {"perSandbox": {"cpuShares": 2048, "priority": 10}}))
    house.settle()
    assert house.condition("runs", "Ready") == "True Running"
    assert house.condition("runs", "Accepted") == "False QuotaExceeded"
    runs = house.get("runs")
    assert runs is not None
    [message] = [condition["message"] for condition in runs.status["conditions"] if condition["type"] == "Accepted"]
    assert "spec.resources.cpuShares: 4096 is more than quota default/main allows one sandbox (2048)" in message
    assert "spec.priority: 100 is more than" in message
    house.engine.kill(house.container_name("runs"))
    house.settle()
    assert house.condition("runs", "Ready") == "True Running", "a crash takes nothing from it"

    rests = house.get("rests")
    assert rests is not None
    with house.store.transaction() as transaction:  # as an idle sandbox wakes: its spec is not judged again
        spec = {**rests.spec, "runState": "Running"}
        transaction.put(replace(rests, spec=spec, generation=rests.generation + 1))
    house.settle()
    assert house.condition("rests", "Scheduled") == "False QuotaExceeded"
    assert house.condition("rests", "Ready").startswith("False")
    apply(house, document("Quota", "main", {"perSandbox": {"cpuShares": 4096, "priority": 100}}))
    house.settle()
    for name in ("runs", "rests"):
        assert house.condition(name, "Accepted") == "True Admitted"
        assert house.condition(name, "Ready") == "True Running"


def test_a_pool_above_a_bound_keeps_its_members_and_adds_none(house: LoopHarness) -> None:
    house.apply_template("t", image=TINY)
    apply_pool(house, priority=11, warmReplicas=1)
    house.settle()
    [before] = house.ours().values()
    apply(house, document("Quota", "main", {"perSandbox": {"priority": 10}}))
    house.settle()
    assert list(house.ours().values()) == [before]
    with house.store.transaction() as transaction:
        pool = transaction.list("SandboxPool", "default")[0]
        transaction.put(replace(pool, spec={**pool.spec, "warmReplicas": 2}, generation=pool.generation + 1))
    house.settle()
    assert list(house.ours().values()) == [before]


def test_annotations_are_bounded_with_those_that_are_there(house: LoopHarness) -> None:
    apply(house, template("t", annotations={"a": "x" * (200 * KIB)}))
    kind = discover().by_name("SandboxTemplate")
    assert kind is not None
    with pytest.raises(errors.Invalid, match="more than 256 KiB"):
        house.services.patch.patch(kind, "default", "t", {"metadata": {"annotations": {"b": "x" * (60 * KIB)}}})
    house.services.patch.patch(kind, "default", "t", {"metadata": {"annotations": {"b": "x" * (50 * KIB)}}})
    with pytest.raises(errors.Invalid, match=r"metadata\.annotations: are .* bytes together, more than 256 KiB"):
        apply(house, template("t", annotations={"a": "x" * (250 * KIB)}))
    with pytest.raises(errors.Invalid, match="more than 256 KiB"):
        apply(house, template("u", annotations={"a": "x" * (150 * KIB), "b": "x" * (150 * KIB)}))


def test_an_older_object_with_more_annotations_can_still_be_changed(house: LoopHarness) -> None:
    apply(house, template("t"))
    with house.store.transaction() as transaction:
        sandbox_template = transaction.get("SandboxTemplate", "default", "t")
        assert sandbox_template is not None
        transaction.put(replace(sandbox_template, annotations={"a": "x" * (200 * KIB), "b": "x" * (200 * KIB)}))
    kind = discover().by_name("SandboxTemplate")
    assert kind is not None
    patched = house.services.patch.patch(kind, "default", "t", {"metadata": {"labels": {"x": "y"}}})
    assert patched.labels == {"x": "y"}
    apply(house, template("t", labels={"x": "z"}))
