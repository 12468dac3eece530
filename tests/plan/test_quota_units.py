"""Each unit of each quota: exactly as many fit as the numbers say."""

from typing import Any

import pytest

from tests.plan.history import TINY, History

LIMITS = {"cpu": "500m", "memory": "64Mi", "pids": 16, "disk": "1Gi", "gpus": 1}
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
# By unit: what one member asks for, and a little less.
ONE = [
    ("cpu", "500m", "499m"),
    ("cpu", 0.5, 0.499),
    ("memory", "64Mi", (64 << 20) - 1),
    ("pids", 16, 15),
    ("disk", "1Gi", "1023Mi"),
    ("gpus", 1, 0),
]


@pytest.fixture
def history() -> History:
    history = History()
    history.engine.gpu_driver = True
    history.put("SandboxTemplate", "t", image=TINY, command=["sleep", "1000000"], resources={"limits": LIMITS})
    return history


def put_pool(history: History, replicas: int, **quota: Any) -> int:
    """Apply a pool, and return how many of its members are ready."""
    history.put("SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=replicas, quota=quota)
    history.settle()
    return int(history.object("SandboxPool", "warm").status["readyReplicas"])


@pytest.mark.parametrize(("unit", "most"), HARD)
@pytest.mark.parametrize(("kind", "name"), [("Quota", "main"), ("HostQuota", "host")])
def test_as_many_sandboxes_run_as_a_quota_has_room_for(
    history: History, kind: str, name: str, unit: str, most: Any
) -> None:
    history.put(kind, name, hard={unit: most})
    names = [f"web-{number}" for number in range(5)]
    for sandbox in names:
        history.apply(sandbox, resources={"limits": LIMITS})
    history.settle()
    assert [history.condition(sandbox, "Ready") for sandbox in names].count("True Running") == 3


@pytest.mark.parametrize(("unit", "most"), [entry for entry in HARD if entry[0] in ("cpu", "memory", "pids")])
def test_as_many_members_run_as_a_pool_has_room_for(history: History, unit: str, most: Any) -> None:
    assert put_pool(history, 5, **{unit: most}) == 3


@pytest.mark.parametrize(("unit", "most", "less"), ONE)
def test_one_member_may_ask_for_the_most_and_no_more(history: History, unit: str, most: Any, less: Any) -> None:
    assert put_pool(history, 2, perSandbox={unit: less}) == 0
    assert f"{unit}: " in str(history.object("SandboxPool", "warm").status["conditions"])
    assert put_pool(history, 2, perSandbox={unit: most}) == 2


def test_a_pool_of_one_core_holds_two_halves(history: History) -> None:
    """As it was reported: six ran."""
    assert put_pool(history, 6, cpu="1") == 2
