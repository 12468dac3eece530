"""Each unit of each quota, from the document to what runs: exactly as many fit as the numbers say."""

import json
from typing import Any

import pytest

from controller.service import errors
from controller.service.objects.apply import Source
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, counts, house, pool

__all__ = ["house"]
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


def quota(house: LoopHarness, kind: str, **spec: Any) -> None:
    name = "host" if kind == "HostQuota" else "main"
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    house.services.apply.apply([Source("test", json.dumps(document))])


def apply_sandboxes(house: LoopHarness, count: int) -> list[str]:
    names = [f"box-{number}" for number in range(count)]
    for name in names:
        house.apply(name, resources={"limits": ASKS})
    house.settle()
    return [name for name in names if house.condition(name, "Ready") == "True Running"]


def apply_template(house: LoopHarness) -> None:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"], resources={"limits": ASKS})


@pytest.mark.parametrize(("unit", "most"), HARD)
@pytest.mark.parametrize("kind", ["Quota", "HostQuota"])
def test_as_many_sandboxes_run_as_a_quota_has_room_for(house: LoopHarness, kind: str, unit: str, most: Any) -> None:
    house.engine.gpu_driver = True
    quota(house, kind, hard={unit: most})
    assert len(apply_sandboxes(house, 5)) == 3


@pytest.mark.parametrize(("unit", "most"), [entry for entry in HARD if entry[0] in ("cpu", "memory", "pids")])
def test_as_many_members_run_as_a_pool_has_room_for(house: LoopHarness, unit: str, most: Any) -> None:
    house.engine.gpu_driver = True
    apply_template(house)
    apply_pool(house, warmReplicas=5, quota={unit: most})
    house.settle()
    assert counts(house)[1] == 3
    house.refer("claim", "t")
    house.settle()
    assert house.condition("claim", "Ready") == "True Running"
    assert counts(house)[1:] == (2, 1), "what came of the pool counts in its quota"


@pytest.mark.parametrize(("unit", "most", "less"), ONE)
@pytest.mark.parametrize("kind", ["Quota", "HostQuota"])
def test_one_sandbox_may_ask_for_the_most_and_no_more(
    house: LoopHarness, kind: str, unit: str, most: Any, less: Any
) -> None:
    house.engine.gpu_driver = True
    quota(house, kind, perSandbox={unit: less})
    with pytest.raises(errors.Invalid, match=f"{unit}: .* requested, .* is the maximum for one sandbox"):
        apply_sandboxes(house, 1)
    quota(house, kind, perSandbox={unit: most})
    assert len(apply_sandboxes(house, 2)) == 2


@pytest.mark.parametrize(("unit", "most", "less"), ONE)
def test_one_member_may_ask_for_the_most_and_no_more(house: LoopHarness, unit: str, most: Any, less: Any) -> None:
    house.engine.gpu_driver = True
    apply_template(house)
    apply_pool(house, warmReplicas=2, quota={"perSandbox": {unit: less}})
    house.settle()
    assert counts(house)[1] == 0
    assert f"{unit}: " in str(pool(house).status["conditions"])
    apply_pool(house, warmReplicas=2, quota={"perSandbox": {unit: most}})
    house.settle()
    assert counts(house)[1] == 2


def test_a_pool_of_one_core_holds_two_halves(house: LoopHarness) -> None:
    """As it was reported: six ran."""
    apply_template(house)
    house.engine.gpu_driver = True
    apply_pool(house, warmReplicas=6, quota={"cpu": "1"})
    house.settle()
    assert counts(house)[1] == 2


def test_a_pool_may_not_give_one_more_than_all(house: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match=r"1500m is more than spec\.quota\.cpu allows for all \(1\)"):
        apply_pool(house, quota={"cpu": "1", "perSandbox": {"cpu": "1500m"}})
