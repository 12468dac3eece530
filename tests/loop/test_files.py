"""Files in memory across stops, over a real store and the fake engine: kept by every suspension, discarded if asked."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import Action, SignalContainer
from controller.kinds.runtime.mount import CheckFiles
from controller.policy.levels.levels import Policy
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}
TMP = "/tmp"


def kinds(house: LoopHarness, *of: type) -> list[str]:
    return [type(each).__name__ for each in house.engine.calls if isinstance(each, of)]


def running(house: LoopHarness, **spec: Any) -> None:
    """Run a sandbox with a file in memory."""
    house.apply("web", **spec)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"
    house.engine.in_memory[uid(house)][TMP] = "kept"


def saved(house: LoopHarness) -> dict[str, str]:
    return house.engine.saved_files.get(uid(house), {})


def uid(house: LoopHarness) -> str:
    sandbox = house.get("web")
    assert sandbox is not None
    return sandbox.uid


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    house = LoopHarness(world.store(), policy=Policy(holds_memory=True))
    house.engine.at_rest = True
    yield house
    house.close()


def test_saved_files_count_as_disk_until_the_start(house: LoopHarness) -> None:
    quota = {"apiVersion": "paddock/v1alpha1", "kind": "Quota", "metadata": {"name": "q"}}
    text = json.dumps({**quota, "spec": {"hard": {"disk": 3}}})  # less than they have: nothing is refused for it
    house.services.apply.apply([Source("test", text)])
    running(house)
    reserved = [house.store.instances([uid(house)])[0].reserves.disk_bytes]
    for state in ("Suspended", "Running"):
        house.apply("web", runState=state)
        house.settle(seconds=5)
        reserved.append(house.store.instances([uid(house)])[0].reserves.disk_bytes)
    assert reserved == [0, len("kept"), 0]
    assert house.condition("web", "Ready") == "True Running"


def test_idle_sandbox_keeps_its_files(house: LoopHarness) -> None:
    running(house, lifecycle=IDLE)
    house.settle(seconds=200)
    assert house.condition("web", "Suspended") == "True IdleReaped"
    assert saved(house) == {TMP: "kept"}


def test_idle_one_that_does_not_fit_stays_running(house: LoopHarness) -> None:
    running(house, lifecycle=IDLE)
    house.engine.too_large.add(uid(house))
    house.settle(seconds=1000)
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("web", "FilesKept") == "False TooLarge"
    assert kinds(house, SignalContainer) == []
    assert len(kinds(house, CheckFiles)) < 20, "with a back-off"


def test_an_engine_killed_at_any_step_loses_no_file(house: LoopHarness) -> None:
    """It is killed before a call, which gets no answer, and all containers end with it; then it is started again."""
    count = 0

    def kill_at(step: int) -> None:
        nonlocal count
        count = 0

        def counted(_action: Action) -> None:
            nonlocal count
            count += 1
            if count == step:
                house.engine.go_down()

        house.engine.before_act = counted

    for change in ("Suspended", "Running"):
        for step in range(1, 20):
            running(house, lifecycle={"shutdownGracePeriodSeconds": 5})
            if change == "Running":
                set_state(house, "Suspended")
            kill_at(step)
            set_state(house, change)
            house.engine.before_act = None
            was_killed = count >= step
            house.engine.come_up()
            if was_killed:
                house.engine.restart()
                house.engine.observe_now(full=True)
            house.settle(seconds=60)
            memory = house.engine.in_memory.get(uid(house), {})
            places = (saved(house), memory) if change == "Suspended" else (memory, saved(house))
            assert places == ({TMP: "kept"}, {}), f"{change}, step {step}"
            assert len(house.engine.observe().containers[uid(house)]) == 1
            house.delete("web")
            house.settle(seconds=60)
            assert (house.engine.saved_files, house.names()) == ({}, [])
            if not was_killed:
                break
        assert 2 < step < 20


def set_state(house: LoopHarness, state: str) -> None:
    house.apply("web", runState=state, lifecycle={"shutdownGracePeriodSeconds": 5})
    house.settle(seconds=10)
