"""Files in memory across stops, over a real store and the fake engine: kept by every suspension, discarded if asked."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import SignalContainer
from controller.kinds.runtime.mount import CheckFiles
from controller.policy.levels.levels import Policy
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
