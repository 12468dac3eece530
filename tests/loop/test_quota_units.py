"""Each unit of each quota, from the document on: one sandbox may ask for the most, and no more."""

import json
from typing import Any

import pytest

from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, counts, harness

__all__ = ["harness"]
LIMITS = {"cpu": "500m", "memory": "64Mi", "pids": 16, "disk": "1Gi", "gpus": 1}
# By unit: what one sandbox asks for, and a little less.
ONE = [
    ("cpu", "500m", "499m"),
    ("cpu", 0.5, 0.499),
    ("memory", "64Mi", (64 << 20) - 1),
    ("pids", 16, 15),
    ("disk", "1Gi", "1023Mi"),
    ("gpus", 1, 0),
]


def quota(harness: LoopHarness, kind: str, **spec: Any) -> None:
    name = "host" if kind == "HostQuota" else "main"
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    harness.services.apply.apply([Source("test", json.dumps(document))])


def apply_sandboxes(harness: LoopHarness, count: int) -> list[str]:
    names = [f"web-{number}" for number in range(count)]
    for name in names:
        harness.apply(name, resources={"limits": LIMITS})
    harness.settle()
    return [name for name in names if harness.condition(name, "Ready") == "True Running"]


def test_claims_count_in_the_quota_of_their_pool(harness: LoopHarness) -> None:
    harness.engine.gpu_driver = True
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"], resources={"limits": LIMITS})
    apply_pool(harness, warmReplicas=5, quota={"memory": "192Mi"})
    harness.settle()
    harness.refer("claim", "t")
    harness.settle()
    assert harness.condition("claim", "Ready") == "True Running"
    assert counts(harness)[1:] == (2, 1)


@pytest.mark.parametrize(("unit", "most", "less"), ONE)
@pytest.mark.parametrize("kind", ["Quota", "HostQuota"])
def test_one_sandbox_may_ask_for_the_most_and_no_more(
    harness: LoopHarness, kind: str, unit: str, most: Any, less: Any
) -> None:
    harness.engine.gpu_driver = True
    quota(harness, kind, perSandbox={unit: less})
    with pytest.raises(errors.Invalid, match=f"{unit}: .* requested, .* is the maximum for one sandbox"):
        apply_sandboxes(harness, 1)
    quota(harness, kind, perSandbox={unit: most})
    assert len(apply_sandboxes(harness, 2)) == 2


def test_a_pool_may_not_give_one_more_than_all(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"1500m is more than spec\.quota\.cpu allows for all \(1\)"):
        apply_pool(harness, quota={"cpu": "1", "perSandbox": {"cpu": "1500m"}})
