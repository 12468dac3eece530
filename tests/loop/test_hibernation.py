"""Hibernation over a real store and the fake engine: who hibernates, who wakes, and what both wait for."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.common.labels import egress_name
from controller.kinds.observed.observed import State
from controller.kinds.observed.swap import HibernationAbility
from controller.kinds.planning.action import HibernateContainer, UpdateLimits, WakeContainer
from controller.kinds.planning.outcome import NOT_HIBERNATED, Transient
from controller.policy.network.egress import IMAGE
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness
from tests.loop.test_idle import Exec, opened, state

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}
SMALL = {"limits": {"memory": "64Mi", "cpu": "100m", "pids": 16}}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    harness.engine.at_rest = harness.hibernates = True
    yield harness
    harness.close()


def hibernated(house: LoopHarness, *names: str, **spec: Any) -> None:
    """Sandboxes that idleness hibernated."""
    for name in names:
        house.apply(name, lifecycle=IDLE, **spec)
    house.settle(seconds=0)
    house.settle(seconds=70)
    for name in names:
        assert (state(house, name), house.condition(name, "Ready")) == (State.PAUSED, "False Hibernated")


def count(house: LoopHarness, kind: type) -> int:
    return sum(isinstance(entry, kind) for entry in house.engine.calls)


def reserved(house: LoopHarness, name: str) -> tuple[int, int]:
    record = next(instance for instance in house.store.instances() if instance.parent_name == name)
    return record.reserves.cpu_millicores, record.reserves.memory_bytes


def test_two_execs_at_once_wake_it_once(house: LoopHarness) -> None:
    hibernated(house, "web")
    before = house.engine.box(house.container_name("web")).started_at
    both = [Exec(house), Exec(house)]
    assert [entry.turns_until_open().output() for entry in both] == [[b"hello\n", b"0"]] * 2
    assert (count(house, HibernateContainer), count(house, WakeContainer)) == (1, 1)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"
    assert house.engine.box(house.container_name("web")).started_at == before
    house.settle(seconds=70)
    assert house.condition("web", "Ready") == "False Hibernated"


def test_memory_and_cpu_are_given_back(house: LoopHarness) -> None:
    hibernated(house, "web", resources=SMALL)
    assert reserved(house, "web") == (0, 0)
    Exec(house).turns_until_open().output()
    house.settle(seconds=0)
    assert reserved(house, "web") == (100, 64 << 20)


def test_a_wake_waits_for_capacity_before_new_sandboxes(house: LoopHarness) -> None:
    hibernated(house, "web", resources=SMALL)
    house.apply("other", resources=SMALL)
    house.settle(seconds=0)
    put(house, "Quota", "main", {"hard": {"memory": "100Mi"}})
    house.apply("new", resources=SMALL)
    turns_until_open = Exec(house).turns_until_open()
    assert "hibernated, and waits to be woken: quota default/main" in str(turns_until_open.error)
    web = house.get("web")
    assert web is not None
    house.activity.begin(web.uid, asks=True)
    house.settle(seconds=0)
    assert (state(house), house.condition("web", "Scheduled")) == (State.PAUSED, "False QuotaExceeded")
    house.delete("other")
    house.settle(seconds=20)
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("new", "Scheduled") == "False QuotaExceeded"


def test_few_are_woken_at_once(house: LoopHarness) -> None:
    names = [f"web-{number}" for number in range(10)]
    hibernated(house, *names)
    for name in names:
        harness = house.get(name)
        assert harness is not None
        house.activity.begin(harness.uid, asks=True)
    plan = house.run_pass()
    assert sum(isinstance(action, WakeContainer) for group in plan.groups for action in group.actions) == 2
    assert house.condition("web-9", "Scheduled") == "False WakeQueued"
    house.settle(seconds=0)
    assert {house.condition(name, "Ready") for name in names} == {"True Running"}


def test_a_use_of_what_a_person_hibernated_resumes_it(house: LoopHarness) -> None:
    house.apply("web", runState="Hibernated", lifecycle=IDLE)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "False Hibernated"
    assert Exec(house).turns_until_open().output() == [b"hello\n", b"0"]
    web = house.get("web")
    assert web is not None
    assert web.spec["runState"] == "Running"


def test_a_person_waits_for_a_command_to_end(house: LoopHarness) -> None:
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    stream = opened(house)()
    house.apply("web", runState="Hibernated", lifecycle=IDLE)
    house.settle(seconds=10)
    assert (state(house), house.condition("web", "Ready")) == (State.RUNNING, "False Hibernating")
    list(stream)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "False Hibernated"


def test_limits_change_once_it_is_awake(house: LoopHarness) -> None:
    house.apply("web", runState="Hibernated", lifecycle=IDLE, resources=SMALL)
    house.settle(seconds=0)
    house.apply(
        "web", runState="Hibernated", lifecycle=IDLE, resources={"limits": {**SMALL["limits"], "memory": "32Mi"}}
    )
    house.settle(seconds=10)
    assert house.condition("web", "Resized") == "False Deferred"
    assert count(house, UpdateLimits) == 0
    Exec(house).turns_until_open()
    house.settle(seconds=0)
    assert house.condition("web", "Resized") == "True InForce"


def test_a_pause_by_a_person_stays_a_pause(house: LoopHarness) -> None:
    house.apply("web", runState="Paused", lifecycle=IDLE)
    house.settle(seconds=500)
    assert house.condition("web", "Ready") == "False Paused"
    assert count(house, HibernateContainer) == 0


def test_a_host_that_can_not_lets_it_run(house: LoopHarness) -> None:
    house.engine.hibernation = HibernationAbility(False, "NoSwap", "the host has no active swap")
    house.apply("web", runState="Hibernated", lifecycle=IDLE)
    house.settle(seconds=0)
    assert (state(house), house.condition("web", "Ready")) == (State.RUNNING, "False HibernationUnavailable")
    house.engine.hibernation = HibernationAbility(True, "CompressedMemory")
    house.settle(seconds=40)
    assert house.condition("web", "Ready") == "False Hibernated"


def test_one_that_can_not_be_hibernated_is_suspended(house: LoopHarness) -> None:
    house.engine.fail_next(HibernateContainer, *[Transient(NOT_HIBERNATED, "no")] * 3)
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    house.settle(seconds=100)
    assert house.condition("web", "Suspended") == "True IdleReaped"


def test_a_restart_of_the_engine_loses_it_in_words(house: LoopHarness) -> None:
    hibernated(house, "web")
    house.engine.restart()
    house.engine.observe_now(full=True)
    house.settle(seconds=10)
    assert (state(house), house.condition("web", "Suspended")) == (State.EXITED, "True IdleReaped")
    assert [event.reason for event in house.store.events(name="web")].count("HibernationLost") == 1
    assert Exec(house).turns_until_open().output() == [b"hello\n", b"0"]


def test_warm_members_hibernate_and_a_claim_wakes_one(house: LoopHarness) -> None:
    house.apply_template("t", image="paddock/test-tiny:1", command=["sleep", "1000000"])
    pool = {"templateRef": {"name": "t"}, "warmReplicas": 2, "warmState": "Hibernated"}
    put(house, "SandboxPool", "warm", pool)
    house.settle(seconds=5)
    assert {box.state for box in boxes(house)} == {State.PAUSED}
    sandbox_pool = house.store.get("SandboxPool", "default", "warm")
    assert sandbox_pool is not None
    assert sandbox_pool.status["readyReplicas"] == 2
    assert all(instance.reserves.memory_bytes == 0 for instance in house.store.instances())
    house.refer("web", "t")
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"
    claimed = house.get("web")
    assert claimed is not None
    assert claimed.status["launchType"] == "Warm"
    assert count(house, WakeContainer) == 1


def test_opening_a_project_wakes_its_sandbox(house: LoopHarness) -> None:
    hibernated(house, "web")
    ready: list[str] = []

    def open_() -> None:
        ready.append(house.services.projects.open("default", "web", "", 30.0).name)

    thread = threading.Thread(target=open_, daemon=True)
    thread.start()
    for _ in range(60):
        house.settle(seconds=0)
        thread.join(0.05)
    assert ready == ["web"]
    assert house.condition("web", "Ready") == "True Running"


def boxes(house: LoopHarness) -> list[Any]:
    return [container for group in house.engine.observe().containers.values() for container in group]


def put(house: LoopHarness, kind: str, name: str, spec: dict[str, Any]) -> None:
    document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    house.services.apply.apply([Source("test", json.dumps(document))])


def test_a_hibernated_one_keeps_its_proxy(house: LoopHarness) -> None:
    house.engine.add_image(IMAGE)
    spec = {"network": {"allowedHosts": ["git.example.org"]}, "template": {"securityLevel": "development"}}
    hibernated(house, "web", **spec)
    web = house.get("web")
    assert web is not None
    proxy = egress_name(web.uid)
    house.settle(seconds=1000)
    house.engine.observe_now(full=True)
    house.settle(seconds=10)
    assert house.engine.box(proxy).state is State.RUNNING
    assert house.condition("web", "NetworkReady") == "True Sealed"
    record = next(instance for instance in house.store.instances() if instance.name == proxy)
    assert record.reserves.memory_bytes
    assert Exec(house).turns_until_open().output() == [b"hello\n", b"0"]


def test_callers_that_give_up_hold_up_no_wake(house: LoopHarness) -> None:
    names = [f"web-{number}" for number in range(10)]
    hibernated(house, *names)
    uids = [harness.uid for name in names if (harness := house.get(name)) is not None]
    for uid in uids:
        house.activity.begin(uid, asks=True)
    house.run_pass()
    for uid in uids[:-1]:
        house.activity.end(uid, asks=True)
    house.settle(seconds=1)
    assert house.condition("web-9", "Ready") == "True Running"
    assert {house.condition(name, "Scheduled") for name in names} == {"True Assigned"}
