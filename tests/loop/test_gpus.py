"""GPUs that the operator lists: no two sandboxes have the same one, through suspension, restarts and lack."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.policy.levels.levels import Policy
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.fakes.engine import FACTS
from tests.loop.harness import LoopHarness

QUICK = {"shutdownGracePeriodSeconds": 0}
SMALL = {"memory": "64Mi", "cpu": "100m", "pids": 16}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store(), policy=Policy(gpu_devices=("0", "1", "2")))
    made.engine.gpu_driver = True
    lists(made, "0", "1", "2")
    yield made
    made.close()


def lists(house: LoopHarness, *devices: str) -> None:
    house.engine.facts = replace(FACTS, gpus=devices)
    house.engine.observe_now()


def box(house: LoopHarness, name: str, gpus: int = 1, state: str = "Running", **more: Any) -> None:
    house.apply(name, resources={"limits": {**SMALL, "gpus": gpus}}, runState=state, lifecycle=QUICK, **more)
    house.settle()


def given(house: LoopHarness, *names: str) -> list[tuple[str, ...]]:
    return [house.engine.box(house.container_name(each)).gpu_ids for each in names]


def ready(house: LoopHarness, name: str) -> str:
    return house.condition(name, "Ready")


def test_each_gets_its_own(house: LoopHarness) -> None:
    for name, count in (("a", 1), ("b", 2)):
        house.apply(name, resources={"limits": {**SMALL, "gpus": count}}, lifecycle=QUICK)
    house.settle()
    assert given(house, "a", "b") == [("0",), ("1", "2")]
    box(house, "c")
    assert house.condition("c", "Scheduled") == "False QuotaExceeded"
    house.delete("a")
    house.settle()
    assert given(house, "b", "c") == [("1", "2"), ("0",)]


def test_a_container_that_is_made_anew_keeps_its_own(house: LoopHarness) -> None:
    box(house, "a")
    box(house, "b")
    house.delete("a")
    house.settle()
    house.engine.remove(house.container_name("b"))
    house.settle()
    assert given(house, "b") == [("1",)]


def test_what_is_suspended_gives_its_own_back_and_gets_others(house: LoopHarness) -> None:
    lists(house, "0", "1")
    box(house, "a")
    made = house.engine.box(house.container_name("a")).id
    box(house, "a", state="Suspended")
    box(house, "a")
    assert house.engine.box(house.container_name("a")).id == made  # nobody took them meanwhile
    box(house, "a", state="Suspended")
    box(house, "b")
    box(house, "a")
    house.daemon()
    house.settle()
    assert given(house, "b", "a") == [("0",), ("1",)]
    assert ready(house, "a") == ready(house, "b") == "True Running"


def test_one_that_is_listed_no_more_is_left_at_the_next_start(house: LoopHarness) -> None:
    box(house, "a")
    lists(house, "1", "2")
    house.settle()
    assert given(house, "a") == [("0",)]
    house.engine.kill(house.container_name("a"))
    house.settle()
    assert given(house, "a") == [("1",)]


def test_more_promised_than_there_are_waits(house: LoopHarness) -> None:
    document = '{"apiVersion": "paddock/v1alpha1", "kind": "HostQuota", "metadata": {"name": "host"}, "spec": %s}'
    house.services.apply.apply([Source("test", document % '{"hard": {"gpus": 9}}')])
    box(house, "a", 3)
    box(house, "b")
    assert ready(house, "b") == "False GpusInUse"
    house.delete("a")
    house.settle()
    assert given(house, "b") == [("0",)]


def test_one_that_needs_none_any_more_gives_them_back(house: LoopHarness) -> None:
    lists(house, "0")
    box(house, "a")
    box(house, "a", 0)
    box(house, "b")
    assert given(house, "a", "b") == [(), ("0",)]


def test_without_a_list_the_engine_chooses(house: LoopHarness) -> None:
    lists(house)
    box(house, "a")
    assert given(house, "a") == [()]
    assert house.engine.box(house.container_name("a")).gpus == 1


def test_one_that_names_devices_gets_those_or_waits(house: LoopHarness) -> None:
    named: dict[str, Any] = {"resources": {"limits": SMALL, "gpuDeviceIds": ["2"]}, "lifecycle": QUICK}
    house.apply("a", **named)
    house.settle()
    assert given(house, "a") == [("2",)]
    house.apply("b", **named)
    house.settle()
    assert ready(house, "b") == "False GpusInUse"
    house.apply("a", resources={"limits": SMALL, "gpuDeviceIds": ["0", "1"]}, lifecycle=QUICK)
    house.settle()
    assert given(house, "a", "b") == [("0", "1"), ("2",)]
