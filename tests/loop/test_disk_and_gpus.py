"""Disk and GPUs: reserved as everything else, each in its own way."""

import json
from typing import Any

import pytest

from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import filled, harness, launch

__all__ = ["harness"]
SMALL = {"memory": "64Mi", "cpu": "100m", "pids": 16}
QUICK = {"shutdownGracePeriodSeconds": 0}


def sandbox(harness: LoopHarness, name: str, state: str = "Running", **limits: Any) -> None:
    harness.apply(name, resources={"limits": {**SMALL, **limits}}, runState=state, lifecycle=QUICK)
    harness.settle()


def quota(harness: LoopHarness, hard: dict[str, Any], one: dict[str, Any] | None = None) -> None:
    spec = {"hard": hard, "perSandbox": one or {}}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Quota", "metadata": {"name": "q"}, "spec": spec}
    harness.services.apply.apply([Source("test", json.dumps(document))])


def test_what_can_never_fit_is_refused(harness: LoopHarness) -> None:
    quota(harness, {"gpus": 4, "disk": "10Gi"}, {"gpus": 1})
    with pytest.raises(errors.Invalid, match="gpus: 2 requested, 1 is the maximum for one sandbox"):
        sandbox(harness, "a", gpus=2)
    with pytest.raises(errors.Invalid, match="disk: 11Gi requested"):
        sandbox(harness, "a", disk="11Gi")


def test_a_pool_without_gpus_serves_none_that_wants_one(harness: LoopHarness) -> None:
    harness.engine.gpu_driver = True
    filled(harness, 1)
    harness.refer("a", "t", resources={"limits": {"gpus": 1}})
    harness.settle()
    assert launch(harness, "a") == "Cold: pool `warm` has other members: gpus 0, desired 1"
