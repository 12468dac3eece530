"""Disk and GPUs: reserved as everything else, each in its own way."""

import json
from typing import Any

import pytest

from controller.kinds.planning.action import CreateContainer
from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import filled, house, launch

__all__ = ["house"]
SMALL = {"memory": "64Mi", "cpu": "100m", "pids": 16}
QUICK = {"shutdownGracePeriodSeconds": 0}


def quota(house: LoopHarness, hard: dict[str, Any], one: dict[str, Any] | None = None) -> None:
    spec = {"hard": hard, "perSandbox": one or {}}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Quota", "metadata": {"name": "q"}, "spec": spec}
    house.services.apply.apply([Source("test", json.dumps(document))])


def box(house: LoopHarness, name: str, state: str = "Running", **limits: Any) -> None:
    house.apply(name, resources={"limits": {**SMALL, **limits}}, runState=state, lifecycle=QUICK)
    house.settle()


def used(house: LoopHarness) -> dict[str, Any]:
    found = house.store.get("Quota", "default", "q")
    assert found is not None
    return {name: found.status["used"][name] for name in ("disk", "gpus")}


def scheduled(house: LoopHarness, name: str) -> str:
    return house.condition(name, "Scheduled")


def test_gpus_are_given_back_by_what_is_suspended_and_disk_is_not(house: LoopHarness) -> None:
    house.engine.gpu_driver = True
    quota(house, {"gpus": 1, "disk": "10Gi"})
    box(house, "a", gpus=1, disk="4Gi")
    assert used(house) == {"disk": "4Gi", "gpus": "1"}
    box(house, "b", gpus=1)
    assert scheduled(house, "b") == "False QuotaExceeded"
    box(house, "a", "Suspended", gpus=1, disk="4Gi")
    assert used(house) == {"disk": "4Gi", "gpus": "1"}
    assert house.condition("b", "Ready") == "True Running"
    box(house, "c", disk="7Gi")
    assert scheduled(house, "c") == "False QuotaExceeded"
    house.delete("a")
    house.settle()
    assert house.condition("c", "Ready") == "True Running"


def test_what_can_never_fit_is_refused(house: LoopHarness) -> None:
    quota(house, {"gpus": 4, "disk": "10Gi"}, {"gpus": 1})
    with pytest.raises(errors.Invalid, match="gpus: 2 requested, 1 is the maximum for one sandbox"):
        box(house, "a", gpus=2)
    with pytest.raises(errors.Invalid, match="disk: 11Gi requested"):
        box(house, "a", disk="11Gi")


def test_gpus_go_to_the_engine_and_another_number_is_another_container(house: LoopHarness) -> None:
    house.engine.gpu_driver = True
    quota(house, {"gpus": 2})
    box(house, "a", gpus=1)
    assert house.engine.box(house.container_name("a")).gpus == 1
    box(house, "a", gpus=2)
    assert house.engine.box(house.container_name("a")).gpus == 2
    made = [each for each in house.engine.calls if isinstance(each, CreateContainer)]
    assert made[-1].why == "spec.resources.limits.gpus changed"
    assert used(house)["gpus"] == "2"


def test_more_gpus_than_are_free_leave_what_runs_alone(house: LoopHarness) -> None:
    house.engine.gpu_driver = True
    quota(house, {"gpus": 2})
    box(house, "a", gpus=1)
    box(house, "b", gpus=1)
    box(house, "a", gpus=2)
    assert house.engine.box(house.container_name("a")).gpus == 1
    assert house.condition("a", "Ready") == "True Running"
    assert used(house)["gpus"] == "2"
    house.delete("b")
    house.settle()
    assert house.engine.box(house.container_name("a")).gpus == 2


def test_without_a_driver_it_says_so_and_waits_for_another_spec(house: LoopHarness) -> None:
    box(house, "a", gpus=1)
    assert house.condition("a", "Degraded") == "True NoDeviceDriver"
    calls = len(house.engine.calls)
    house.clock.advance(3600)
    house.settle()
    assert len(house.engine.calls) == calls
    box(house, "a")
    assert house.condition("a", "Ready") == "True Running"


def test_disk_is_reserved_and_what_writes_to_memory_alone_is_held_to_it(house: LoopHarness) -> None:
    box(house, "a", disk="1Gi")
    box(house, "b")
    assert house.condition("a", "DiskQuotaEnforced") == "True InMemory"
    assert house.condition("b", "DiskQuotaEnforced") == "Unknown NotAsked"
    box(house, "a", disk="2Gi")
    [row] = [each for each in house.store.instances() if each.parent_name == "a"]
    assert row.reserves.disk_bytes == 2 << 30
    assert house.get("a").status["restartCount"] == 0  # type: ignore[union-attr]


def test_a_pool_without_gpus_serves_none_that_wants_one(house: LoopHarness) -> None:
    house.engine.gpu_driver = True
    filled(house, 1)
    house.refer("a", "t", resources={"limits": {"gpus": 1}})
    house.settle()
    assert launch(house, "a") == "Cold: pool `warm` has other members: gpus 0, desired 1"
