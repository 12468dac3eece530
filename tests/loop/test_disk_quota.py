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
from tests.contract.store_worlds import World
from tests.fakes.engine import FACTS
from tests.loop.harness import TINY, LoopHarness

ENFORCES = replace(FACTS, disk=DiskAbility(True, "writing past the size was refused"))
UNTRIED = replace(FACTS, disk=None)
QUICK = {"shutdownGracePeriodSeconds": 0}
TYPE = "DiskQuotaEnforced"


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    harness.engine.add_image(IMAGE)
    yield harness
    harness.close()


def becomes(house: LoopHarness, facts: HostFacts) -> None:
    house.engine.facts = facts
    house.engine.observe_now()
    house.settle()


def box(house: LoopHarness, name: str = "a", disk: str = "1Gi", level: str = "development", **more: Any) -> None:
    resources: dict[str, Any] = {"limits": {"disk": disk} if disk else {}}
    if more:
        resources["disk"] = more
    house.apply(name, template={"securityLevel": level}, resources=resources, lifecycle=QUICK)
    house.settle()


def storage(house: LoopHarness, name: str = "a") -> int:
    config = house.engine.box(house.container_name(name)).config
    assert config is not None
    return config.storage_bytes


def writes(house: LoopHarness, count: int, name: str = "a") -> None:
    """The sandbox is measured to have written so many bytes."""
    sandbox = house.engine.box(house.container_name(name))
    house.layers[sandbox.id] = LayerUsage(count, house.clock.now())
    house.settle()


def test_where_it_cannot_be_held_required_is_refused_and_all_else_is_soft(house: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match="can't be Required on this host: the engine refuses a size"):
        box(house, enforcement="Required")
    with pytest.raises(errors.Invalid, match=r"set resources\.limits\.disk"):
        box(house, disk="", enforcement="Required")
    box(house, enforcement="BestEffort")
    assert storage(house) == 0
    assert house.condition("a", TYPE) == "False Soft"


def test_nothing_is_decided_before_the_host_has_said_what_it_can(house: LoopHarness) -> None:
    house.engine.facts = HostFacts()
    house.engine.observe_now()
    box(house)
    assert not house.engine.calls
    becomes(house, ENFORCES)
    assert storage(house) == 1 << 30


def test_a_pools_sandbox_of_another_size_is_not_handed_out(house: LoopHarness) -> None:
    becomes(house, ENFORCES)
    limits = {"limits": {"disk": "1Gi"}}
    house.apply_template("t", image="paddock/test-tiny:1", securityLevel="development", resources=limits)
    pool = {"templateRef": {"name": "t"}, "warmReplicas": 1}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "SandboxPool", "metadata": {"name": "p"}, "spec": pool}
    house.services.apply.apply([Source("test", json.dumps(document))])
    house.settle()
    house.refer("same", "t")
    house.refer("other", "t", resources={"limits": {"disk": "2Gi"}})
    house.settle()
    assert [launch(house, entry) for entry in ("same", "other")] == ["Warm", "Cold"]
    assert storage(house, "other") == 2 << 30


def test_a_member_of_a_pool_that_is_claimed_is_measured_against_its_new_limit(house: LoopHarness) -> None:
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "p"},
        "spec": {"templateRef": {"name": "t"}, "warmReplicas": 1},
    }
    house.apply_template("t", image=TINY, securityLevel="development", resources={"limits": {"disk": "4Gi"}})
    house.services.apply.apply([Source("test", json.dumps(document))])
    house.settle()
    house.refer("a", "t", resources={"limits": {"disk": "1Gi"}}, lifecycle=QUICK)
    house.settle()
    assert launch(house, "a") == "Warm"
    writes(house, 2 << 30)
    assert house.condition("a", "Finished") == "True DiskLimitExceeded"


def launch(house: LoopHarness, name: str) -> str:
    harness = house.get(name)
    assert harness is not None
    return str(harness.status["launchType"])
