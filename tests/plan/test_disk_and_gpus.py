"""Disk and GPUs: reserved as everything else, each in its own way."""

from typing import Any

from controller.kinds.planning.action import CreateContainer
from tests.plan.history import History

SMALL = {"memory": "64Mi", "cpu": "100m", "pids": 16}
QUICK = {"shutdownGracePeriodSeconds": 0}


def quota(history: History, hard: dict[str, Any], one: dict[str, Any] | None = None) -> None:
    history.put("Quota", "q", hard=hard, perSandbox=one or {})


def sandbox(history: History, name: str, state: str = "Running", **limits: Any) -> None:
    history.apply(name, resources={"limits": {**SMALL, **limits}}, runState=state, lifecycle=QUICK)
    history.settle()


def used(history: History) -> dict[str, Any]:
    of_all = history.object("Quota", "q").status["used"]
    return {name: of_all[name] for name in ("disk", "gpus")}


def scheduled(history: History, name: str) -> str:
    return history.condition(name, "Scheduled")


def test_gpus_are_given_back_by_what_is_suspended_and_disk_is_not(history: History) -> None:
    history.engine.gpu_driver = True
    quota(history, {"gpus": 1, "disk": "10Gi"})
    sandbox(history, "a", gpus=1, disk="4Gi")
    assert used(history) == {"disk": "4Gi", "gpus": "1"}
    sandbox(history, "b", gpus=1)
    assert scheduled(history, "b") == "False QuotaExceeded"
    sandbox(history, "a", "Suspended", gpus=1, disk="4Gi")
    assert used(history) == {"disk": "4Gi", "gpus": "1"}
    assert history.condition("b", "Ready") == "True Running"
    sandbox(history, "c", disk="7Gi")
    assert scheduled(history, "c") == "False QuotaExceeded"
    history.delete("a")
    history.settle()
    assert history.condition("c", "Ready") == "True Running"


def test_gpus_go_to_the_engine_and_another_number_is_another_container(history: History) -> None:
    history.engine.gpu_driver = True
    quota(history, {"gpus": 2})
    sandbox(history, "a", gpus=1)
    assert history.engine.container(history.container_name("a")).gpus == 1
    sandbox(history, "a", gpus=2)
    assert history.engine.container(history.container_name("a")).gpus == 2
    create_containers = [entry for entry in history.engine.calls if isinstance(entry, CreateContainer)]
    assert create_containers[-1].why == "spec.resources.limits.gpus changed"
    assert used(history)["gpus"] == "2"


def test_more_gpus_than_are_free_leave_what_runs_alone(history: History) -> None:
    history.engine.gpu_driver = True
    quota(history, {"gpus": 2})
    sandbox(history, "a", gpus=1)
    sandbox(history, "b", gpus=1)
    sandbox(history, "a", gpus=2)
    assert history.engine.container(history.container_name("a")).gpus == 1
    assert history.condition("a", "Ready") == "True Running"
    assert used(history)["gpus"] == "2"
    history.delete("b")
    history.settle()
    assert history.engine.container(history.container_name("a")).gpus == 2


def test_without_a_driver_it_says_so_and_waits_for_another_spec(history: History) -> None:
    sandbox(history, "a", gpus=1)
    assert history.condition("a", "Degraded") == "True NoDeviceDriver"
    calls = len(history.engine.calls)
    history.clock.advance(3600)
    history.settle()
    assert len(history.engine.calls) == calls
    sandbox(history, "a")
    assert history.condition("a", "Ready") == "True Running"


def test_disk_is_reserved_and_what_writes_to_memory_alone_is_held_to_it(history: History) -> None:
    sandbox(history, "a", disk="1Gi")
    sandbox(history, "b")
    assert history.condition("a", "DiskQuotaEnforced") == "True InMemory"
    assert history.condition("b", "DiskQuotaEnforced") == "Unknown NotAsked"
    sandbox(history, "a", disk="2Gi")
    [row] = [instance for instance in history.instances() if instance.parent_name == "a"]
    assert row.reserves.disk_bytes == 2 << 30
    assert history.status("a")["restartCount"] == 0
