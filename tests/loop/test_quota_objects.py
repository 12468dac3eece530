"""Limits of a namespace's stored objects: objects by number, annotations by size; and a sandbox's highest priority."""

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.registry import discover
from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, harness

__all__ = ["harness"]
KIB = 1 << 10


def document(kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> str:
    about = {"name": name, **metadata}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": about, "spec": spec or {}})


def apply(harness: LoopHarness, *documents: str) -> None:
    harness.services.apply.apply([Source("test", text) for text in documents])


def template(name: str, **metadata: Any) -> str:
    return document("SandboxTemplate", name, {"image": TINY}, **metadata)


def stored(harness: LoopHarness) -> int:
    kinds = [kind.name for kind in discover() if not kind.read_only]
    return sum(len(harness.store.list(kind, "default")[0]) for kind in kinds)


@pytest.fixture
def small(harness: LoopHarness) -> LoopHarness:
    harness.most_objects = 3
    harness.daemon()
    return harness


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


def test_a_host_quota_has_no_objects(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"spec.hard.objects: is counted in each namespace; write it in a Quota"):
        apply(harness, document("HostQuota", "host", {"hard": {"objects": 5}}))


def annotated(name: str, kib: int, **metadata: Any) -> str:
    return template(name, annotations={"example.org/note": "x" * kib * KIB}, **metadata)


def test_annotations_of_a_namespace_are_bounded_together(harness: LoopHarness) -> None:
    harness.most_annotation_bytes = 100 * KIB
    harness.daemon()
    apply(harness, annotated("a", 40), annotated("b", 40), annotated("elsewhere", 90, namespace="other"))
    with pytest.raises(errors.Invalid, match=r"metadata.annotations: the .* of namespace `default`") as refusal:
        apply(harness, annotated("c", 40))
    assert "annotations_per_namespace_bytes in the daemon's settings" in str(refusal.value)
    assert "raise `hard.annotations` of its Quota" in str(refusal.value)
    with pytest.raises(errors.Invalid, match="annotations"):
        apply(harness, annotated("c", 15), annotated("d", 15))
    with pytest.raises(errors.Invalid, match="annotations"):
        apply(harness, annotated("a", 80))
    apply(harness, annotated("a", 10), annotated("c", 40), annotated("small", 3))


def test_a_quota_bounds_annotations(harness: LoopHarness) -> None:
    apply(harness, annotated("a", 40))
    apply(harness, document("Quota", "main", {"hard": {"annotations": "30Ki"}}))
    with pytest.raises(errors.Invalid, match=r"would have .* of at most 30Ki \(quota default/main\)"):
        apply(harness, annotated("b", 20))
    apply(harness, annotated("a", 35))
    with pytest.raises(errors.Invalid, match=r"spec.hard.annotations: is counted in each namespace"):
        apply(harness, document("HostQuota", "host", {"hard": {"annotations": "1Mi"}}))


@pytest.mark.parametrize("kind", ["Quota", "HostQuota"])
def test_a_quota_bounds_weight_and_priority_of_one_sandbox(harness: LoopHarness, kind: str) -> None:
    name = "host" if kind == "HostQuota" else "main"
    harness.apply("older", resources={"cpuShares": 4096}, priority=100)
    harness.settle()
    apply(harness, document(kind, name, {"perSandbox": {"cpuShares": 2048, "priority": 10}}))
    with pytest.raises(errors.Invalid, match=r"spec.resources.cpuShares: 2049 is more than .* allows one sandbox"):
        harness.apply("a", resources={"cpuShares": 2049})
    with pytest.raises(errors.Invalid, match=r"spec.resources.cpuShares: 262144 is more"):
        harness.apply("a", template={"resources": {"cpuShares": 262144}})
    with pytest.raises(errors.Invalid, match=r"spec.priority: 11 is more than .* allows one sandbox \(10\); lower it"):
        harness.apply("a", priority=11)
    harness.apply("a", resources={"cpuShares": 2048}, priority=10)
    harness.apply_template("t", image=TINY)
    with pytest.raises(errors.Invalid, match=r"spec.priority: 11 is more"):
        apply_pool(harness, priority=11)
    apply_pool(harness, priority=10)
    harness.settle()
    assert harness.condition("older", "Ready") == "True Running", "what was there before goes on"


def quota_status(harness: LoopHarness) -> dict[str, Any]:
    quota = harness.store.get("Quota", "default", "main")
    assert quota is not None
    return dict(quota.status)


def test_a_quota_shows_how_much_is_stored(harness: LoopHarness) -> None:
    apply(harness, document("Quota", "main", {"hard": {"objects": 3}}), template("a"))
    harness.settle()
    assert (quota_status(harness)["used"]["objects"], quota_status(harness)["hard"]["objects"]) == ("2", "3")
    harness.apply("box")
    harness.settle()
    assert quota_status(harness)["used"]["objects"] == "3"
    harness.daemon()
    apply(harness, document("Quota", "main", {"hard": {"objects": 1}}))
    harness.settle()
    [exceeded] = quota_status(harness)["conditions"]
    assert (exceeded["status"], exceeded["reason"]) == ("True", "HardLowered")
    assert "objects 3 of 1" in exceeded["message"]
    harness.delete("box")
    harness.delete("a", "sandboxtemplate")
    harness.settle()
    assert quota_status(harness)["used"]["objects"] == "1"
    [exceeded] = quota_status(harness)["conditions"]
    assert (exceeded["status"], exceeded["reason"]) == ("False", "WithinHard")
    apply(harness, document("HostQuota", "host", {"hard": {"sandboxes": 5}}))
    harness.settle()
    [host] = harness.store.list("HostQuota")[0]
    assert "objects" not in host.status["used"]


def test_older_sandboxes_above_a_bound_run_on_and_none_starts(harness: LoopHarness) -> None:
    for name in ("runs", "rests"):
        harness.apply(name, resources={"cpuShares": 4096}, priority=100)
    harness.settle()
    harness.apply("rests", resources={"cpuShares": 4096}, priority=100, runState="Suspended")
    harness.settle()
    apply(harness, document("Quota", "main", {"perSandbox": {"cpuShares": 2048, "priority": 10}}))
    harness.settle()
    assert harness.condition("runs", "Ready") == "True Running"
    assert harness.condition("runs", "Accepted") == "False QuotaExceeded"
    runs = harness.get("runs")
    assert runs is not None
    [message] = [condition["message"] for condition in runs.status["conditions"] if condition["type"] == "Accepted"]
    assert "spec.resources.cpuShares: 4096 is more than quota default/main allows one sandbox (2048)" in message
    assert "spec.priority: 100 is more than" in message
    harness.engine.kill(harness.container_name("runs"))
    harness.settle()
    assert harness.condition("runs", "Ready") == "True Running", "a crash takes nothing from it"

    rests = harness.get("rests")
    assert rests is not None
    with harness.store.transaction() as transaction:  # as an idle sandbox wakes: its spec is not judged again
        spec = {**rests.spec, "runState": "Running"}
        transaction.put(replace(rests, spec=spec, generation=rests.generation + 1))
    harness.settle()
    assert harness.condition("rests", "Scheduled") == "False QuotaExceeded"
    assert harness.condition("rests", "Ready").startswith("False")
    apply(harness, document("Quota", "main", {"perSandbox": {"cpuShares": 4096, "priority": 100}}))
    harness.settle()
    for name in ("runs", "rests"):
        assert harness.condition(name, "Accepted") == "True Admitted"
        assert harness.condition(name, "Ready") == "True Running"


def test_a_pool_above_a_bound_keeps_its_members_and_adds_none(harness: LoopHarness) -> None:
    harness.apply_template("t", image=TINY)
    apply_pool(harness, priority=11, warmReplicas=1)
    harness.settle()
    [before] = harness.ours().values()
    apply(harness, document("Quota", "main", {"perSandbox": {"priority": 10}}))
    harness.settle()
    assert list(harness.ours().values()) == [before]
    with harness.store.transaction() as transaction:
        pool = transaction.list("SandboxPool", "default")[0]
        transaction.put(replace(pool, spec={**pool.spec, "warmReplicas": 2}, generation=pool.generation + 1))
    harness.settle()
    assert list(harness.ours().values()) == [before]


def test_annotations_are_bounded_with_those_that_are_there(harness: LoopHarness) -> None:
    apply(harness, template("t", annotations={"a": "x" * (200 * KIB)}))
    kind = discover().by_name("SandboxTemplate")
    assert kind is not None
    with pytest.raises(errors.Invalid, match="more than 256 KiB"):
        harness.services.patch.patch(kind, "default", "t", {"metadata": {"annotations": {"b": "x" * (60 * KIB)}}})
    harness.services.patch.patch(kind, "default", "t", {"metadata": {"annotations": {"b": "x" * (50 * KIB)}}})
    with pytest.raises(errors.Invalid, match=r"metadata\.annotations: are .* bytes together, more than 256 KiB"):
        apply(harness, template("t", annotations={"a": "x" * (250 * KIB)}))
    with pytest.raises(errors.Invalid, match="more than 256 KiB"):
        apply(harness, template("u", annotations={"a": "x" * (150 * KIB), "b": "x" * (150 * KIB)}))


def test_an_older_object_with_more_annotations_can_still_be_changed(harness: LoopHarness) -> None:
    apply(harness, template("t"))
    with harness.store.transaction() as transaction:
        sandbox_template = transaction.get("SandboxTemplate", "default", "t")
        assert sandbox_template is not None
        transaction.put(replace(sandbox_template, annotations={"a": "x" * (200 * KIB), "b": "x" * (200 * KIB)}))
    kind = discover().by_name("SandboxTemplate")
    assert kind is not None
    patched = harness.services.patch.patch(kind, "default", "t", {"metadata": {"labels": {"x": "y"}}})
    assert patched.labels == {"x": "y"}
    apply(harness, template("t", labels={"x": "z"}))
