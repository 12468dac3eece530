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
    made = LoopHarness(world.store())
    made.engine.add_image(IMAGE)
    yield made
    made.close()


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


def test_the_engine_gets_a_size_where_it_holds_it(house: LoopHarness) -> None:
    becomes(house, ENFORCES)
    box(house)
    assert storage(house) == 1 << 30
    assert house.condition("a", TYPE) == "True StorageOption"
    box(house, "b", disk="")
    assert storage(house, "b") == 0
    assert house.condition("b", TYPE) == "Unknown NotAsked"


def test_another_limit_takes_effect_at_the_next_start(house: LoopHarness) -> None:
    becomes(house, ENFORCES)
    box(house)
    made = house.engine.box(house.container_name("a")).id
    box(house, disk="2Gi")
    assert house.engine.box(house.container_name("a")).id == made
    assert house.condition("a", TYPE) == "False NextStart"
    assert house.condition("a", "Outdated").startswith("True")
    house.engine.kill(house.container_name("a"))
    house.settle()
    assert storage(house) == 2 << 30
    assert house.condition("a", TYPE) == "True StorageOption"


def test_one_that_is_required_is_another_container_at_once(house: LoopHarness) -> None:
    becomes(house, ENFORCES)
    box(house, enforcement="Required")
    box(house, disk="2Gi", enforcement="Required")
    assert storage(house) == 2 << 30
    assert house.condition("a", TYPE) == "True StorageOption"


def test_where_it_cannot_be_held_required_is_refused_and_all_else_is_soft(house: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match="can't be Required on this host: the engine refuses a size"):
        box(house, enforcement="Required")
    with pytest.raises(errors.Invalid, match=r"set resources\.limits\.disk"):
        box(house, disk="", enforcement="Required")
    box(house, enforcement="BestEffort")
    assert storage(house) == 0
    assert house.condition("a", TYPE) == "False Soft"


def test_what_writes_to_memory_alone_may_be_required_anywhere(house: LoopHarness) -> None:
    box(house, level="full-isolation", enforcement="Required")
    assert house.condition("a", TYPE) == "True InMemory"


def test_an_engine_that_was_not_tried_yet_starts_nothing_that_requires_it(house: LoopHarness) -> None:
    becomes(house, ENFORCES)
    box(house, enforcement="Required")
    becomes(house, UNTRIED)
    assert house.engine.box(house.container_name("a")).state == "running"
    assert house.condition("a", "Accepted") == "False Refused"
    becomes(house, ENFORCES)
    assert house.condition("a", "Accepted") == "True Admitted"
    assert house.condition("a", TYPE) == "True StorageOption"


def test_a_host_that_lost_it_makes_none_that_requires_it(house: LoopHarness) -> None:
    becomes(house, ENFORCES)
    box(house, enforcement="Required")
    becomes(house, FACTS)
    house.engine.remove(house.container_name("a"))
    house.settle()
    assert not house.engine.exists(house.container_name("a"))


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
    assert [launch(house, each) for each in ("same", "other")] == ["Warm", "Cold"]
    assert storage(house, "other") == 2 << 30


def writes(house: LoopHarness, count: int, name: str = "a") -> None:
    """The sandbox is measured to have written so many bytes."""
    made = house.engine.box(house.container_name(name))
    house.layers[made.id] = LayerUsage(count, house.clock.now())
    house.settle()


def test_a_soft_limit_stops_what_wrote_more_until_its_spec_changes(house: LoopHarness) -> None:
    box(house)
    writes(house, 1 << 30)
    assert house.condition("a", "Ready") == "True Running"
    writes(house, (1 << 30) + 4096)
    assert house.condition("a", "Finished") == "True DiskLimitExceeded"
    found = house.get("a")
    assert found is not None
    assert found.status["lastTermination"]["reason"] == "Evicted"
    warned = [each.message for each in house.store.events() if each.reason == "DiskLimitExceeded"]
    assert [each for each in warned if "limits.disk is 1Gi" in each] == warned != []
    house.layers.clear()  # what does not run is not measured
    house.daemon()
    house.clock.advance(7200)
    house.settle()
    assert house.engine.box(house.container_name("a")).state == "exited"
    box(house, disk="2Gi")
    assert house.condition("a", "Ready") == "True Running"
    writes(house, (1 << 30) + 4096)
    assert house.condition("a", "Ready") == "True Running"


def test_a_limit_that_is_not_measured_is_no_silence(house: LoopHarness) -> None:
    box(house)
    made = house.engine.box(house.container_name("a"))
    house.layers[made.id] = LayerUsage(None, house.clock.now(), "it has more than 500000 files")
    house.settle()
    assert house.condition("a", TYPE) == "False NotMeasured"
    assert "more than 500000 files" in condition_message(house, "a")
    assert house.condition("a", "Ready") == "True Running"
    writes(house, 1)
    assert house.condition("a", TYPE) == "False Soft"


def condition_message(house: LoopHarness, name: str) -> str:
    found = house.get(name)
    assert found is not None
    return next(str(each["message"]) for each in found.status["conditions"] if each["type"] == TYPE)


def test_what_is_held_otherwise_is_not_stopped(house: LoopHarness) -> None:
    box(house, "memory", level="full-isolation")
    writes(house, 2 << 30, "memory")
    becomes(house, ENFORCES)
    box(house, "engine")
    writes(house, 2 << 30, "engine")
    box(house, "free", disk="")
    writes(house, 2 << 30, "free")
    for name in ("memory", "engine", "free"):
        assert house.condition(name, "Ready") == "True Running"


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
    found = house.get(name)
    assert found is not None
    return str(found.status["launchType"])
