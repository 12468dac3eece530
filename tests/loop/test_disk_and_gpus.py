"""Disk and GPUs: reserved as everything else, each in its own way."""

import json
from typing import Any

import pytest

from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import filled, house, launch

__all__ = ["house"]
SMALL = {"memory": "64Mi", "cpu": "100m", "pids": 16}
QUICK = {"shutdownGracePeriodSeconds": 0}


def box(house: LoopHarness, name: str, state: str = "Running", **limits: Any) -> None:
    house.apply(name, resources={"limits": {**SMALL, **limits}}, runState=state, lifecycle=QUICK)
    house.settle()


def quota(house: LoopHarness, hard: dict[str, Any], one: dict[str, Any] | None = None) -> None:
    spec = {"hard": hard, "perSandbox": one or {}}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Quota", "metadata": {"name": "q"}, "spec": spec}
    house.services.apply.apply([Source("test", json.dumps(document))])


def test_what_can_never_fit_is_refused(house: LoopHarness) -> None:
    quota(house, {"gpus": 4, "disk": "10Gi"}, {"gpus": 1})
    with pytest.raises(errors.Invalid, match="gpus: 2 requested, 1 is the maximum for one sandbox"):
        box(house, "a", gpus=2)
    with pytest.raises(errors.Invalid, match="disk: 11Gi requested"):
        box(house, "a", disk="11Gi")


def test_a_pool_without_gpus_serves_none_that_wants_one(house: LoopHarness) -> None:
    house.engine.gpu_driver = True
    filled(house, 1)
    house.refer("a", "t", resources={"limits": {"gpus": 1}})
    house.settle()
    assert launch(house, "a") == "Cold: pool `warm` has other members: gpus 0, desired 1"
