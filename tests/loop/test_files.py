"""Files in memory across stops, over a real store and the fake engine: kept by every suspension, discarded if asked."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import Action
from controller.policy.levels.levels import Policy
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}
TMP = "/tmp"


def kinds(harness: LoopHarness, *of: type) -> list[str]:
    return [type(each).__name__ for each in harness.engine.calls if isinstance(each, of)]


def running(harness: LoopHarness, **spec: Any) -> None:
    """Run a sandbox with a file in memory."""
    harness.apply("web", **spec)
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "True Running"
    harness.engine.in_memory[uid(harness)][TMP] = "kept"


def saved(harness: LoopHarness) -> dict[str, str]:
    return harness.engine.saved_files.get(uid(harness), {})


def uid(harness: LoopHarness) -> str:
    sandbox = harness.get("web")
    assert sandbox is not None
    return sandbox.uid


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store(), policy=Policy(holds_memory=True))
    harness.engine.at_rest = True
    yield harness
    harness.close()


def test_saved_files_count_as_disk_until_the_start(harness: LoopHarness) -> None:
    quota = {"apiVersion": "paddock/v1alpha1", "kind": "Quota", "metadata": {"name": "q"}}
    text = json.dumps({**quota, "spec": {"hard": {"disk": 3}}})  # less than they have: nothing is refused for it
    harness.services.apply.apply([Source("test", text)])
    running(harness)
    reserved = [harness.store.instances([uid(harness)])[0].reserves.disk_bytes]
    for state in ("Suspended", "Running"):
        harness.apply("web", runState=state)
        harness.settle(seconds=5)
        reserved.append(harness.store.instances([uid(harness)])[0].reserves.disk_bytes)
    assert reserved == [0, len("kept"), 0]
    assert harness.condition("web", "Ready") == "True Running"


def test_an_engine_killed_at_any_step_loses_no_file(harness: LoopHarness) -> None:
    """It is killed before a call, which gets no answer, and all containers end with it; then it is started again."""
    count = 0

    def kill_at(step: int) -> None:
        nonlocal count
        count = 0

        def counted(_action: Action) -> None:
            nonlocal count
            count += 1
            if count == step:
                harness.engine.go_down()

        harness.engine.before_act = counted

    for change in ("Suspended", "Running"):
        for step in range(1, 20):
            running(harness, lifecycle={"shutdownGracePeriodSeconds": 5})
            if change == "Running":
                set_state(harness, "Suspended")
            kill_at(step)
            set_state(harness, change)
            harness.engine.before_act = None
            was_killed = count >= step
            harness.engine.come_up()
            if was_killed:
                harness.engine.restart()
                harness.engine.observe_now(full=True)
            harness.settle(seconds=60)
            memory = harness.engine.in_memory.get(uid(harness), {})
            places = (saved(harness), memory) if change == "Suspended" else (memory, saved(harness))
            assert places == ({TMP: "kept"}, {}), f"{change}, step {step}"
            assert len(harness.engine.observe().containers[uid(harness)]) == 1
            harness.delete("web")
            harness.settle(seconds=60)
            assert (harness.engine.saved_files, harness.names()) == ({}, [])
            if not was_killed:
                break
        assert 2 < step < 20


def set_state(harness: LoopHarness, state: str) -> None:
    harness.apply("web", runState=state, lifecycle={"shutdownGracePeriodSeconds": 5})
    harness.settle(seconds=10)
