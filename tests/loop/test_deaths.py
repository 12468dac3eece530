"""Death records, and what is no crash: an engine that takes its containers down with it."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.planning.action import ReadTail, StartContainer
from controller.kinds.planning.outcome import Transient, Waiting
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store())
    yield made
    made.close()


def record(house: LoopHarness, name: str = "web") -> dict[str, Any]:
    found = house.get(name)
    assert found is not None
    ended: dict[str, Any] = found.status["lastTermination"]
    return ended


def running(house: LoopHarness, **spec: Any) -> str:
    """A settled sandbox `web`; the name of its container."""
    house.apply("web", **spec)
    house.settle()
    return house.container_name("web")


def test_a_death_is_recorded_with_its_last_words(house: LoopHarness) -> None:
    name = running(house, resources={"limits": {"memory": "64Mi"}})
    house.engine.say(name, "begun\n")
    house.engine.say(name, "no more memory \x1b[31m\x00\n", "stderr")
    house.engine.exit(name, 137, oom=True)
    house.settle()
    found = record(house)
    assert (found["reason"], found["exitCode"], found["signal"]) == ("OOMKilled", 137, 9)
    assert found["logTail"] == ["begun", "no more memory \\x1b[31m\\x00"]
    assert found["limits"]["memory"] == "64Mi"
    assert (found["generation"], found["restartCount"]) == (1, 0)
    assert found["specChangedTime"] <= found["startedTime"] <= found["finishedTime"]
    assert house.condition("web", "Ready") == "True Running"


def test_each_run_has_its_own_last_words(house: LoopHarness) -> None:
    name = running(house)
    for word in ("first", "second"):
        house.engine.say(name, f"{word}\n")
        house.clock.advance(0.001)
        house.engine.exit(name, 3)
        house.settle(seconds=0)
        assert record(house)["logTail"] == [word]
        house.settle()


def test_the_log_is_read_once_for_each_end_and_before_the_next_start(house: LoopHarness) -> None:
    name = running(house)
    house.engine.exit(name, 1)
    before = len(house.engine.calls)
    house.settle()
    assert [type(each) for each in house.engine.calls[before:]] == [ReadTail, StartContainer]
    house.engine.observe_now(full=True)
    house.settle()
    assert len(house.engine.calls) == before + 2


def test_a_finished_one_keeps_its_record_and_is_at_rest(house: LoopHarness) -> None:
    name = running(house, restartPolicy="Never")
    house.engine.say(name, "done\n")
    house.engine.exit(name, 0)
    house.settle()
    assert (record(house)["reason"], record(house)["logTail"]) == ("Completed", ["done"])
    assert house.condition("web", "Finished") == "True Completed"
    calls, revision = len(house.engine.calls), house.store.revision()
    house.settle()
    assert (len(house.engine.calls), house.store.revision()) == (calls, revision)


def test_an_engine_that_does_not_answer_is_asked_again_for_the_last_words(house: LoopHarness) -> None:
    name = running(house)
    house.engine.say(name, "help\n")
    house.engine.fail_next(ReadTail, Waiting(2, "EngineUnreachable", "connection refused"))
    house.engine.exit(name, 1)
    house.settle()
    assert record(house)["logTail"] == ["help"]
    assert house.condition("web", "Ready") == "True Running"


def test_the_end_of_a_removed_container_is_known_by_what_the_engine_told(house: LoopHarness) -> None:
    name = running(house)
    house.engine.remove(name)
    house.settle()
    found = record(house)
    assert (found["reason"], found["exitCode"]) == ("Killed", 137)
    assert "removed before" in found["logNote"]
    assert house.store.instances()[0].memory.crashes == 0


def test_a_replaced_container_was_superseded(house: LoopHarness) -> None:
    name = running(house)
    house.engine.say(name, "bye\n")
    house.apply("web", template={"env": [{"name": "A", "value": "1"}]})
    house.settle()
    found = record(house)
    assert (found["reason"], found["logTail"], found["generation"]) == ("Superseded", ["bye"], 2)
    assert house.condition("web", "Ready") == "True Running"
    status = house.get("web")
    assert status is not None
    assert status.status["restartCount"] == 0


@pytest.mark.parametrize("exit_code", [0, 137, 255])
@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_sandbox_lost_with_its_engine_starts_at_once_and_has_not_crashed(
    house: LoopHarness, policy: str, exit_code: int
) -> None:
    name = running(house, restartPolicy=policy)
    for _ in range(4):
        house.engine.go_down("connection refused")
        house.settle(seconds=0)
        assert house.condition("web", "Ready") == "Unknown EngineUnreachable"
        house.engine.restart(exit_code=exit_code)
        house.clock.advance(3)
        house.engine.come_up()
        house.settle(seconds=0)
        assert record(house)["reason"] == "EngineLost"
        assert house.condition("web", "Ready") == "True Running"
    assert house.engine.box(name).started_at > 0
    memory = house.store.instances()[0].memory
    assert (memory.crashes, memory.restarts) == (0, 4)


@pytest.mark.parametrize(("policy", "exit_code"), [("Always", 143), ("OnFailure", 0)])
def test_an_end_that_is_told_before_the_engine_goes_is_taken_back(
    house: LoopHarness, policy: str, exit_code: int
) -> None:
    name = running(house, restartPolicy=policy)
    if policy == "Always":  # in its back-off: it is not started by the engine that goes
        house.engine.exit(name, 1)
        house.settle()
        house.clock.advance(60)
    crashes = house.store.instances()[0].memory.crashes
    house.engine.shut_down(exit_code)
    house.settle(seconds=0)
    assert record(house)["reason"] != "EngineLost"
    house.engine.go_down("connection refused")
    house.settle(seconds=0)
    house.engine.restart()
    house.engine.come_up()
    house.settle(seconds=0)
    assert record(house)["reason"] == "EngineLost"
    assert house.condition("web", "Ready") == "True Running"
    assert house.store.instances()[0].memory.crashes == crashes


def test_a_sandbox_lost_with_its_engine_is_finished_when_it_never_restarts(house: LoopHarness) -> None:
    running(house, restartPolicy="Never")
    house.engine.restart()
    house.engine.come_up()
    house.settle()
    assert house.condition("web", "Finished") == "True EngineLost"


def test_one_that_ends_before_its_start_is_noted_has_ended_by_itself(house: LoopHarness) -> None:
    """The engine notes a start once the process runs: an end can be some milliseconds older."""
    name = running(house, restartPolicy="OnFailure")
    for code, reason in ((3, "Error"), (0, "Completed")):
        house.engine.exit(name, code, early=0.004)
        house.settle(seconds=60)
        assert record(house)["reason"] == reason
    assert house.condition("web", "Finished") == "True Completed"
    memory = house.store.instances()[0].memory
    assert (memory.crashes, memory.restarts) == (2, 1)


def test_an_end_that_the_engine_did_not_see_is_no_fault_of_the_sandbox(house: LoopHarness) -> None:
    """The host went down under it: the engine has the end of the run before."""
    name = running(house)
    house.engine.exit(name, 0)
    finished = house.engine.box(name).finished_at
    house.settle(seconds=60)
    house.engine.exit(name, 0, early=house.engine.box(name).started_at - finished)
    house.settle(seconds=0)
    assert record(house)["reason"] == "EngineLost"
    memory = house.store.instances()[0].memory
    assert (memory.crashes, memory.restarts) == (0, 2)


def test_a_lost_engine_forgives_no_crash(house: LoopHarness) -> None:
    name = running(house)
    house.engine.exit(name, 1)
    house.settle()
    house.engine.restart()
    house.engine.come_up()
    house.settle(seconds=0)
    house.engine.exit(name, 1)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "False CrashLoopBackOff"


def test_sandboxes_outlive_an_engine_with_live_restore(house: LoopHarness) -> None:
    name = running(house)
    before = house.engine.box(name).pid
    calls = len(house.engine.calls)
    house.engine.go_down("connection refused")
    house.settle(seconds=0)
    house.engine.restart(live_restore=True)
    house.engine.come_up()
    house.settle()
    assert house.engine.box(name).pid == before
    assert len(house.engine.calls) == calls


def test_many_lost_sandboxes_are_started_again_and_none_is_made_anew(house: LoopHarness) -> None:
    for at in range(12):
        house.apply(f"box-{at}")
    house.settle()
    calls = len(house.engine.calls)
    house.engine.restart()
    house.engine.come_up()
    house.settle()
    assert {type(each) for each in house.engine.calls[calls:]} == {ReadTail, StartContainer}
    assert {house.condition(f"box-{at}", "Ready") for at in range(12)} == {"True Running"}


def test_a_daemon_started_after_the_engine_knows_what_was_lost(house: LoopHarness) -> None:
    running(house, restartPolicy="OnFailure")
    house.engine.restart(exit_code=0)
    house.engine.come_up()
    house.daemon()
    house.settle()
    assert record(house)["reason"] == "EngineLost"
    assert house.condition("web", "Ready") == "True Running"


def test_a_start_that_stays_blocked_gets_a_new_container(house: LoopHarness) -> None:
    before = house.engine.box(running(house, restartPolicy="Always")).id
    blocked = Transient("StartBlocked", "pdk-web does not start: task 3a01: already exists")
    away = Transient("StartFailed", "pdk-web does not start: connection refused: unavailable")
    house.engine.fail_next(StartContainer, away, away, blocked, blocked, blocked)
    house.engine.exit(house.container_name("web"), 1)
    house.settle(seconds=4)
    assert house.condition("web", "Degraded") == "True StartBlocked"
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert house.engine.box(house.container_name("web")).id != before
    event = next(each for each in house.store.events(kind="Sandbox", name="web") if each.reason == "Recreating")
    assert (event.type, "root file system and to memory is lost" in event.message) == ("Warning", True)


def test_a_sandbox_without_limits_is_restarted(house: LoopHarness) -> None:
    box = house.engine.box(running(house, restartPolicy="Never"))
    began = box.started_at
    house.engine.lose_cgroups(box.name)
    house.engine.observe_now()
    house.run_pass()
    assert house.condition("web", "Resized") == "Unknown CgroupsLost"
    assert house.condition("web", "Ready") == "False Restarting"
    house.settle()
    assert house.condition("web", "Resized") == "True InForce"
    assert house.condition("web", "Secured") == "True Attested"
    assert house.condition("web", "Ready") == "True Running"
    again = house.engine.box(box.name)
    assert (again.id, again.started_at > began) == (box.id, True)
