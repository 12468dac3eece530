"""Files in memory across stops, over a real store and the fake engine: kept by every suspension, discarded if asked."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.action import RemoveContainer, SignalContainer, StartContainer
from controller.kinds.planning.outcome import FILES_NOT_SAVED, Transient
from controller.kinds.runtime.mount import BindMounts, CheckFiles, RemoveFiles, SaveFiles
from controller.policy.levels.levels import Policy
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}
TMP = "/tmp"


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    house = LoopHarness(world.store(), policy=Policy(holds_memory=True))
    house.engine.at_rest = True
    yield house
    house.close()


def uid(house: LoopHarness) -> str:
    sandbox = house.get("web")
    assert sandbox is not None
    return sandbox.uid


def running(house: LoopHarness, **spec: Any) -> None:
    """Run a sandbox with a file in memory."""
    house.apply("web", **spec)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"
    house.engine.in_memory[uid(house)][TMP] = "kept"


def memory(house: LoopHarness) -> dict[str, str]:
    return house.engine.in_memory.get(uid(house), {})


def saved(house: LoopHarness) -> dict[str, str]:
    return house.engine.saved_files.get(uid(house), {})


def kinds(house: LoopHarness, *of: type) -> list[str]:
    return [type(each).__name__ for each in house.engine.calls if isinstance(each, of)]


def test_new_sandbox_has_its_folders_from_this_host(house: LoopHarness) -> None:
    running(house)
    (container,) = house.engine.observe().containers[uid(house)]
    assert set(container.slots) == {TMP, "/workspace"}
    assert {(each.path, each.keeps_files) for each in container.bound} == {(TMP, True), ("/workspace", True)}
    assert house.condition("web", "Secured") == "True Attested"
    assert house.condition("web", "FilesKept") == "True InMemory"


def test_suspension_saves_after_the_stop_and_start_puts_back(house: LoopHarness) -> None:
    running(house)
    house.engine.calls.clear()
    house.apply("web", runState="Suspended")
    house.settle()
    assert kinds(house, CheckFiles, SignalContainer, SaveFiles) == ["CheckFiles", "SignalContainer", "SaveFiles"]
    assert (memory(house), saved(house)) == ({}, {TMP: "kept"})
    assert house.condition("web", "FilesKept") == "True Saved"
    house.settle()
    assert kinds(house, SaveFiles) == ["SaveFiles"], "saved once"
    house.engine.calls.clear()
    house.apply("web", runState="Running")
    house.settle(seconds=0)
    assert kinds(house, BindMounts, StartContainer) == ["BindMounts", "StartContainer"]
    assert (memory(house), saved(house)) == ({TMP: "kept"}, {})
    assert house.condition("web", "FilesKept") == "True InMemory"


def test_idle_sandbox_keeps_its_files(house: LoopHarness) -> None:
    running(house, lifecycle=IDLE)
    house.settle(seconds=200)
    assert house.condition("web", "Suspended") == "True IdleReaped"
    assert saved(house) == {TMP: "kept"}


def test_discard_loses_them_as_before(house: LoopHarness) -> None:
    running(house, lifecycle={"onSuspend": "Discard"})
    house.apply("web", lifecycle={"onSuspend": "Discard"}, runState="Suspended")
    house.settle()
    assert kinds(house, CheckFiles, SaveFiles) == []
    assert house.condition("web", "FilesKept") == "False Discarded"
    house.apply("web", lifecycle={"onSuspend": "Discard"})
    house.settle(seconds=0)
    assert (memory(house), saved(house)) == ({}, {})


def test_too_large_is_said_before_anything_stops(house: LoopHarness) -> None:
    running(house)
    house.engine.too_large.add(uid(house))
    house.engine.calls.clear()
    house.apply("web", runState="Suspended")
    house.settle(seconds=0)
    assert kinds(house, CheckFiles, SignalContainer) == ["CheckFiles"]
    assert house.condition("web", "FilesKept") == "False TooLarge"
    assert house.engine.box(house.container_name("web")).state is State.RUNNING
    house.engine.too_large.clear()
    house.settle(seconds=400)
    assert saved(house) == {TMP: "kept"}


def test_idle_one_that_does_not_fit_stays_running(house: LoopHarness) -> None:
    running(house, lifecycle=IDLE)
    house.engine.too_large.add(uid(house))
    house.settle(seconds=1000)
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("web", "FilesKept") == "False TooLarge"
    assert kinds(house, SignalContainer) == []
    assert len(kinds(house, CheckFiles)) < 20, "with a back-off"


def test_failed_save_loses_nothing_and_blocks_no_start(house: LoopHarness) -> None:
    running(house)
    house.engine.fail_next(SaveFiles, Transient(FILES_NOT_SAVED, "the disk is full"))
    house.apply("web", runState="Suspended")
    house.settle(seconds=0)
    assert (house.condition("web", "FilesKept"), memory(house)) == ("False NotSaved", {TMP: "kept"})
    house.apply("web", runState="Running")
    house.settle(seconds=0)
    assert (house.condition("web", "Ready"), memory(house)) == ("True Running", {TMP: "kept"})


@pytest.mark.parametrize("change", ["crash", "recreate"])
def test_restart_and_recreate_keep_them(house: LoopHarness, change: str) -> None:
    running(house)
    if change == "crash":
        house.engine.kill(house.container_name("web"))
    else:
        house.apply("web", template={"env": [{"name": "A", "value": "1"}]})
    house.settle(seconds=20)
    assert house.condition("web", "Ready") == "True Running"
    assert memory(house) == {TMP: "kept"}
    assert (RemoveContainer in map(type, house.engine.calls)) is (change == "recreate")


def test_switch_of_running_one_takes_effect_in_place(house: LoopHarness) -> None:
    running(house, lifecycle={"onSuspend": "Discard"})
    house.engine.calls.clear()
    house.apply("web", lifecycle={"onSuspend": "KeepFiles"})
    house.settle(seconds=0)
    assert kinds(house, RemoveContainer, BindMounts, StartContainer) == ["BindMounts"]
    house.apply("web", lifecycle={"onSuspend": "KeepFiles"}, runState="Suspended")
    house.settle()
    assert saved(house) == {TMP: "kept"}


def test_container_of_before_is_renewed_at_its_next_start(house: LoopHarness) -> None:
    house.policy = Policy()
    house.daemon()
    house.apply("web")
    house.settle(seconds=0)
    house.policy = Policy(holds_memory=True)
    house.daemon()
    house.engine.calls.clear()
    house.settle(seconds=20)
    assert house.condition("web", "Outdated") == "False UpToDate"
    assert house.condition("web", "FilesKept") == "False NextStart"
    assert house.engine.calls == []
    house.engine.kill(house.container_name("web"))
    house.settle(seconds=20)
    assert house.condition("web", "FilesKept") == "True InMemory"
    assert kinds(house, RemoveContainer) == ["RemoveContainer"]


def test_delete_removes_saved_files_without_container_too(house: LoopHarness) -> None:
    running(house)
    house.apply("web", runState="Suspended")
    house.settle()
    ours = uid(house)
    house.engine.remove(house.container_name("web"))
    assert house.engine.saved_files[ours]
    house.delete("web")
    house.settle()
    assert (house.get("web"), house.engine.saved_files, kinds(house, RemoveFiles)) == (None, {}, ["RemoveFiles"])
