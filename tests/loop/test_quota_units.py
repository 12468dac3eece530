"""Each unit of each quota, from the document to what runs: exactly as many fit as the numbers say."""

import json
from typing import Any

import pytest

from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, counts, harness, pool

__all__ = ["harness"]
ASKS = {"cpu": "500m", "memory": "64Mi", "pids": 16, "disk": "1Gi", "gpus": 1}
# By unit: what three sandboxes hold together, in more than one notation, and the most in which no fourth fits.
HARD = [
    ("cpu", "1500m"),
    ("cpu", 1.5),
    ("cpu", "1999m"),
    ("memory", "192Mi"),
    ("memory", 192 << 20),
    ("memory", (256 << 20) - 1),
    ("pids", 48),
    ("pids", 63),
    ("disk", "3Gi"),
    ("disk", (4 << 30) - 1),
    ("gpus", 3),
    ("sandboxes", 3),
]
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
    names = [f"box-{number}" for number in range(count)]
    for name in names:
        harness.apply(name, resources={"limits": ASKS})
    harness.settle()
    return [name for name in names if harness.condition(name, "Ready") == "True Running"]


def apply_template(harness: LoopHarness) -> None:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"], resources={"limits": ASKS})


@pytest.mark.parametrize(("unit", "most"), HARD)
@pytest.mark.parametrize("kind", ["Quota", "HostQuota"])
def test_as_many_sandboxes_run_as_a_quota_has_room_for(harness: LoopHarness, kind: str, unit: str, most: Any) -> None:
    harness.engine.gpu_driver = True
    quota(harness, kind, hard={unit: most})
    assert len(apply_sandboxes(harness, 5)) == 3


@pytest.mark.parametrize(("unit", "most"), [entry for entry in HARD if entry[0] in ("cpu", "memory", "pids")])
def test_as_many_members_run_as_a_pool_has_room_for(harness: LoopHarness, unit: str, most: Any) -> None:
    harness.engine.gpu_driver = True
    apply_template(harness)
    apply_pool(harness, warmReplicas=5, quota={unit: most})
    harness.settle()
    assert counts(harness)[1] == 3
    harness.refer("claim", "t")
    harness.settle()
    assert harness.condition("claim", "Ready") == "True Running"
    assert counts(harness)[1:] == (2, 1), "what came of the pool counts in its quota"


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


@pytest.mark.parametrize(("unit", "most", "less"), ONE)
def test_one_member_may_ask_for_the_most_and_no_more(harness: LoopHarness, unit: str, most: Any, less: Any) -> None:
    harness.engine.gpu_driver = True
    apply_template(harness)
    apply_pool(harness, warmReplicas=2, quota={"perSandbox": {unit: less}})
    harness.settle()
    assert counts(harness)[1] == 0
    assert f"{unit}: " in str(pool(harness).status["conditions"])
    apply_pool(harness, warmReplicas=2, quota={"perSandbox": {unit: most}})
    harness.settle()
    assert counts(harness)[1] == 2


def test_a_pool_of_one_core_holds_two_halves(harness: LoopHarness) -> None:
    """As it was reported: six ran."""
    apply_template(harness)
    harness.engine.gpu_driver = True
    apply_pool(harness, warmReplicas=6, quota={"cpu": "1"})
    harness.settle()
    assert counts(harness)[1] == 2


def test_a_pool_may_not_give_one_more_than_all(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"1500m is more than spec\.quota\.cpu allows for all \(1\)"):
        apply_pool(harness, quota={"cpu": "1", "perSandbox": {"cpu": "1500m"}})
