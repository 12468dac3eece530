"""GPUs that the operator lists: no two sandboxes have the same one, through suspension, restarts and lack."""

from dataclasses import replace
from typing import Any

import pytest

from controller.policy.levels.levels import Policy
from tests.fakes.engine import FACTS
from tests.plan.history import History

QUICK = {"shutdownGracePeriodSeconds": 0}
SMALL = {"memory": "64Mi", "cpu": "100m", "pids": 16}


@pytest.fixture
def history() -> History:
    created = History(Policy(gpu_devices=("0", "1", "2")))
    created.engine.gpu_driver = True
    lists(created, "0", "1", "2")
    return created


def lists(history: History, *devices: str) -> None:
    history.engine.facts = replace(FACTS, gpus=devices)
    history.engine.observe_now()


def sandbox(history: History, name: str, gpus: int = 1, state: str = "Running", **more: Any) -> None:
    history.apply(name, resources={"limits": {**SMALL, "gpus": gpus}}, runState=state, lifecycle=QUICK, **more)
    history.settle()


def given(history: History, *names: str) -> list[tuple[str, ...]]:
    return [history.engine.container(history.container_name(name)).gpu_ids for name in names]


def ready(history: History, name: str) -> str:
    return history.condition(name, "Ready")


def test_each_gets_its_own(history: History) -> None:
    for name, count in (("a", 1), ("b", 2)):
        history.apply(name, resources={"limits": {**SMALL, "gpus": count}}, lifecycle=QUICK)
    history.settle()
    assert given(history, "a", "b") == [("0",), ("1", "2")]
    sandbox(history, "c")
    assert history.condition("c", "Scheduled") == "False QuotaExceeded"
    history.delete("a")
    history.settle()
    assert given(history, "b", "c") == [("1", "2"), ("0",)]


def test_a_container_that_is_made_anew_keeps_its_own(history: History) -> None:
    sandbox(history, "a")
    sandbox(history, "b")
    history.delete("a")
    history.settle()
    history.engine.remove(history.container_name("b"))
    history.settle()
    assert given(history, "b") == [("1",)]


def test_what_is_suspended_gives_its_own_back_and_gets_others(history: History) -> None:
    lists(history, "0", "1")
    sandbox(history, "a")
    name = history.engine.container(history.container_name("a")).id
    sandbox(history, "a", state="Suspended")
    sandbox(history, "a")
    assert history.engine.container(history.container_name("a")).id == name  # nobody took them meanwhile
    sandbox(history, "a", state="Suspended")
    sandbox(history, "b")
    sandbox(history, "a")
    history.daemon()
    history.settle()
    assert given(history, "b", "a") == [("0",), ("1",)]
    assert ready(history, "a") == ready(history, "b") == "True Running"


def test_one_that_is_listed_no_more_is_left_at_the_next_start(history: History) -> None:
    sandbox(history, "a")
    lists(history, "1", "2")
    history.settle()
    assert given(history, "a") == [("0",)]
    history.engine.kill(history.container_name("a"))
    history.settle()
    assert given(history, "a") == [("1",)]


def test_more_promised_than_there_are_waits(history: History) -> None:
    history.put("HostQuota", "host", hard={"gpus": 9})
    sandbox(history, "a", 3)
    sandbox(history, "b")
    assert ready(history, "b") == "False GpusInUse"
    history.delete("a")
    history.settle()
    assert given(history, "b") == [("0",)]


def test_one_that_needs_none_any_more_gives_them_back(history: History) -> None:
    lists(history, "0")
    sandbox(history, "a")
    sandbox(history, "a", 0)
    sandbox(history, "b")
    assert given(history, "a", "b") == [(), ("0",)]


def test_without_a_list_the_engine_chooses(history: History) -> None:
    lists(history)
    sandbox(history, "a")
    assert given(history, "a") == [()]
    assert history.engine.container(history.container_name("a")).gpus == 1


def test_one_that_names_devices_gets_those_or_waits(history: History) -> None:
    document: dict[str, Any] = {"resources": {"limits": SMALL, "gpuDeviceIds": ["2"]}, "lifecycle": QUICK}
    history.apply("a", **document)
    history.settle()
    assert given(history, "a") == [("2",)]
    history.apply("b", **document)
    history.settle()
    assert ready(history, "b") == "False GpusInUse"
    history.apply("a", resources={"limits": SMALL, "gpuDeviceIds": ["0", "1"]}, lifecycle=QUICK)
    history.settle()
    assert given(history, "a", "b") == [("0", "1"), ("2",)]
