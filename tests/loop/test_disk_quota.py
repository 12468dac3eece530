"""limits.disk: held by the engine where it can, insisted on where the spec says so, and otherwise said to be soft."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.observed import HostFacts
from controller.kinds.observed.usage import LayerUsage
from controller.kinds.runtime.disk import DiskAbility
from controller.policy.network.egress import IMAGE
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.fakes.engine import FACTS
from tests.loop.harness import TINY, LoopHarness

ENFORCES = replace(FACTS, disk=DiskAbility(True, "writing past the size was refused"))
QUICK = {"shutdownGracePeriodSeconds": 0}
TYPE = "DiskQuotaEnforced"


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    harness.engine.add_image(IMAGE)
    yield harness
    harness.close()


def becomes(harness: LoopHarness, facts: HostFacts) -> None:
    harness.engine.facts = facts
    harness.engine.observe_now()
    harness.settle()


def sandbox(harness: LoopHarness, name: str = "a", disk: str = "1Gi", level: str = "development", **more: Any) -> None:
    resources: dict[str, Any] = {"limits": {"disk": disk} if disk else {}}
    if more:
        resources["disk"] = more
    harness.apply(name, template={"securityLevel": level}, resources=resources, lifecycle=QUICK)
    harness.settle()


def storage(harness: LoopHarness, name: str = "a") -> int:
    config = harness.engine.container(harness.container_name(name)).config
    assert config is not None
    return config.storage_bytes


def writes(harness: LoopHarness, count: int, name: str = "a") -> None:
    """The sandbox is measured to have written so many bytes."""
    sandbox = harness.engine.container(harness.container_name(name))
    harness.layers[sandbox.id] = LayerUsage(count, harness.clock.now())
    harness.settle()


def test_where_it_cannot_be_held_required_is_refused_and_all_else_is_soft(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match="can't be Required on this host: the engine refuses a size"):
        sandbox(harness, enforcement="Required")
    with pytest.raises(errors.Invalid, match=r"set resources\.limits\.disk"):
        sandbox(harness, disk="", enforcement="Required")
    sandbox(harness, enforcement="BestEffort")
    assert storage(harness) == 0
    assert harness.condition("a", TYPE) == "False Soft"


def test_a_pools_sandbox_of_another_size_is_not_handed_out(harness: LoopHarness) -> None:
    becomes(harness, ENFORCES)
    limits = {"limits": {"disk": "1Gi"}}
    harness.apply_template("t", image="paddock/test-tiny:1", securityLevel="development", resources=limits)
    pool = {"templateRef": {"name": "t"}, "warmReplicas": 1}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "SandboxPool", "metadata": {"name": "p"}, "spec": pool}
    harness.services.apply.apply([Source("test", json.dumps(document))])
    harness.settle()
    harness.refer("same", "t")
    harness.refer("other", "t", resources={"limits": {"disk": "2Gi"}})
    harness.settle()
    assert [launch(harness, entry) for entry in ("same", "other")] == ["Warm", "Cold"]
    assert storage(harness, "other") == 2 << 30


def test_a_member_of_a_pool_that_is_claimed_is_measured_against_its_new_limit(harness: LoopHarness) -> None:
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "p"},
        "spec": {"templateRef": {"name": "t"}, "warmReplicas": 1},
    }
    harness.apply_template("t", image=TINY, securityLevel="development", resources={"limits": {"disk": "4Gi"}})
    harness.services.apply.apply([Source("test", json.dumps(document))])
    harness.settle()
    harness.refer("a", "t", resources={"limits": {"disk": "1Gi"}}, lifecycle=QUICK)
    harness.settle()
    assert launch(harness, "a") == "Warm"
    writes(harness, 2 << 30)
    assert harness.condition("a", "Finished") == "True DiskLimitExceeded"


def launch(harness: LoopHarness, name: str) -> str:
    sandbox = harness.get(name)
    assert sandbox is not None
    return str(sandbox.status["launchType"])


def test_nothing_is_decided_before_the_host_has_answered(harness: LoopHarness) -> None:
    harness.engine.facts = HostFacts()
    harness.engine.observe_now()
    sandbox(harness)
    assert not harness.engine.calls
    becomes(harness, ENFORCES)
    assert storage(harness) == 1 << 30
