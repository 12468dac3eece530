"""Hibernation over a real store and the fake engine: who hibernates, who wakes, and what both wait for."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.common.labels import egress_name
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import HibernateContainer, UpdateLimits, WakeContainer
from controller.policy.network.egress import IMAGE
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness
from tests.loop.test_idle import Exec, opened, state
from tests.small_sandboxes import SMALL

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    harness.engine.at_rest = harness.hibernates = True
    yield harness
    harness.close()


def hibernated(harness: LoopHarness, *names: str, **spec: Any) -> None:
    """Sandboxes that idleness hibernated."""
    for name in names:
        harness.apply(name, lifecycle=IDLE, **spec)
    harness.settle(seconds=0)
    harness.settle(seconds=70)
    for name in names:
        assert (state(harness, name), harness.condition(name, "Ready")) == (State.PAUSED, "False Hibernated")


def count(harness: LoopHarness, kind: type) -> int:
    return sum(isinstance(entry, kind) for entry in harness.engine.calls)


def reserved(harness: LoopHarness, name: str) -> tuple[int, int]:
    record = next(instance for instance in harness.store.instances() if instance.parent_name == name)
    return record.reserves.cpu_millicores, record.reserves.memory_bytes


def test_two_execs_at_once_wake_it_once(harness: LoopHarness) -> None:
    hibernated(harness, "web")
    before = harness.engine.container(harness.container_name("web")).started_at
    both = [Exec(harness), Exec(harness)]
    assert [entry.open_after_passes().output() for entry in both] == [[b"hello\n", b"0"]] * 2
    assert (count(harness, HibernateContainer), count(harness, WakeContainer)) == (1, 1)
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.engine.container(harness.container_name("web")).started_at == before
    harness.settle(seconds=70)
    assert harness.condition("web", "Ready") == "False Hibernated"


def test_memory_and_cpu_are_given_back(harness: LoopHarness) -> None:
    hibernated(harness, "web", resources=SMALL)
    assert reserved(harness, "web") == (0, 0)
    Exec(harness).open_after_passes().output()
    harness.settle(seconds=0)
    assert reserved(harness, "web") == (100, 64 << 20)


def test_a_wake_waits_for_capacity_before_new_sandboxes(harness: LoopHarness) -> None:
    hibernated(harness, "web", resources=SMALL)
    harness.apply("other", resources=SMALL)
    harness.settle(seconds=0)
    put(harness, "Quota", "main", {"hard": {"memory": "100Mi"}})
    harness.apply("new", resources=SMALL)
    waiting = Exec(harness).open_after_passes()
    assert "hibernated, and waits to be woken: quota default/main" in str(waiting.error)
    web = harness.get("web")
    assert web is not None
    harness.activity.begin(web.uid, wakes=True)
    harness.settle(seconds=0)
    assert (state(harness), harness.condition("web", "Scheduled")) == (State.PAUSED, "False QuotaExceeded")
    harness.delete("other")
    harness.settle(seconds=20)
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.condition("new", "Scheduled") == "False QuotaExceeded"


def test_a_use_of_what_a_person_hibernated_resumes_it(harness: LoopHarness) -> None:
    harness.apply("web", runState="Hibernated", lifecycle=IDLE)
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "False Hibernated"
    assert Exec(harness).open_after_passes().output() == [b"hello\n", b"0"]
    web = harness.get("web")
    assert web is not None
    assert web.spec["runState"] == "Running"


def test_a_person_waits_for_a_command_to_end(harness: LoopHarness) -> None:
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    stream = opened(harness)()
    harness.apply("web", runState="Hibernated", lifecycle=IDLE)
    harness.settle(seconds=10)
    assert (state(harness), harness.condition("web", "Ready")) == (State.RUNNING, "False Hibernating")
    list(stream)
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "False Hibernated"


def test_limits_change_once_it_is_awake(harness: LoopHarness) -> None:
    harness.apply("web", runState="Hibernated", lifecycle=IDLE, resources=SMALL)
    harness.settle(seconds=0)
    harness.apply(
        "web", runState="Hibernated", lifecycle=IDLE, resources={"limits": {**SMALL["limits"], "memory": "32Mi"}}
    )
    harness.settle(seconds=10)
    assert harness.condition("web", "Resized") == "False Deferred"
    assert count(harness, UpdateLimits) == 0
    Exec(harness).open_after_passes()
    harness.settle(seconds=0)
    assert harness.condition("web", "Resized") == "True InForce"


def test_a_restart_of_the_engine_loses_it_in_words(harness: LoopHarness) -> None:
    hibernated(harness, "web")
    harness.engine.restart()
    harness.engine.observe_now(full=True)
    harness.settle(seconds=10)
    assert (state(harness), harness.condition("web", "Suspended")) == (State.EXITED, "True IdleReaped")
    assert [event.reason for event in harness.store.events(name="web")].count("HibernationLost") == 1
    assert Exec(harness).open_after_passes().output() == [b"hello\n", b"0"]


def test_warm_members_hibernate_and_a_claim_wakes_one(harness: LoopHarness) -> None:
    harness.apply_template("t", image="paddock/test-tiny:1", command=["sleep", "1000000"])
    pool = {"templateRef": {"name": "t"}, "warmReplicas": 2, "warmState": "Hibernated"}
    put(harness, "SandboxPool", "warm", pool)
    harness.settle(seconds=5)
    assert {sandbox.state for sandbox in sandboxes(harness)} == {State.PAUSED}
    sandbox_pool = harness.store.get("SandboxPool", "default", "warm")
    assert sandbox_pool is not None
    assert sandbox_pool.status["readyReplicas"] == 2
    assert all(instance.reserves.memory_bytes == 0 for instance in harness.store.instances())
    harness.refer("web", "t")
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "True Running"
    claimed = harness.get("web")
    assert claimed is not None
    assert claimed.status["launchType"] == "Warm"
    assert count(harness, WakeContainer) == 1


def test_opening_a_project_wakes_its_sandbox(harness: LoopHarness) -> None:
    hibernated(harness, "web")
    ready: list[str] = []

    def open_() -> None:
        ready.append(harness.services.projects.open("default", "web", "", 30.0).name)

    thread = threading.Thread(target=open_, daemon=True)
    thread.start()
    for _ in range(60):
        harness.settle(seconds=0)
        thread.join(0.05)
    assert ready == ["web"]
    assert harness.condition("web", "Ready") == "True Running"


def sandboxes(harness: LoopHarness) -> list[Any]:
    return [container for group in harness.engine.observe().containers.values() for container in group]


def put(harness: LoopHarness, kind: str, name: str, spec: dict[str, Any]) -> None:
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    harness.services.apply.apply([Source("test", json.dumps(document))])


def test_a_hibernated_one_keeps_its_proxy(harness: LoopHarness) -> None:
    harness.engine.add_image(IMAGE)
    spec = {"network": {"allowedHosts": ["git.example.org"]}, "template": {"securityLevel": "development"}}
    hibernated(harness, "web", **spec)
    web = harness.get("web")
    assert web is not None
    proxy = egress_name(web.uid)
    harness.settle(seconds=1000)
    harness.engine.observe_now(full=True)
    harness.settle(seconds=10)
    assert harness.engine.container(proxy).state is State.RUNNING
    assert harness.condition("web", "NetworkReady") == "True Sealed"
    record = next(instance for instance in harness.store.instances() if instance.name == proxy)
    assert record.reserves.memory_bytes
    assert Exec(harness).open_after_passes().output() == [b"hello\n", b"0"]
