"""Death records, and what is no crash: an engine that takes its containers down with it."""

from typing import Any

import pytest

from controller.kinds.planning.action import ReadTail, StartContainer
from controller.kinds.planning.outcome import Transient, Waiting
from tests.plan.history import History


def record(history: History, name: str = "web") -> dict[str, Any]:
    last_termination: dict[str, Any] = history.status(name)["lastTermination"]
    return last_termination


def running(history: History, **spec: Any) -> str:
    """A settled sandbox `web`; the name of its container."""
    history.apply("web", **spec)
    history.settle()
    return history.container_name("web")


def test_a_death_is_recorded_with_its_last_words(history: History) -> None:
    name = running(history, resources={"limits": {"memory": "64Mi"}})
    history.engine.say(name, "begun\n")
    history.engine.say(name, "no more memory \x1b[31m\x00\n", "stderr")
    history.engine.exit(name, 137, oom=True)
    history.settle()
    document = record(history)
    assert (document["reason"], document["exitCode"], document["signal"]) == ("OOMKilled", 137, 9)
    assert document["logTail"] == ["begun", "no more memory \\x1b[31m\\x00"]
    assert document["limits"]["memory"] == "64Mi"
    assert (document["generation"], document["restartCount"]) == (1, 0)
    assert document["specChangedTime"] <= document["startedTime"] <= document["finishedTime"]
    assert history.condition("web", "Ready") == "True Running"


def test_each_run_has_its_own_last_words(history: History) -> None:
    name = running(history)
    for word in ("first", "second"):
        history.engine.say(name, f"{word}\n")
        history.clock.advance(0.001)
        history.engine.exit(name, 3)
        history.settle(seconds=0)
        assert record(history)["logTail"] == [word]
        history.settle()


def test_the_log_is_read_once_for_each_end_and_before_the_next_start(history: History) -> None:
    name = running(history)
    history.engine.exit(name, 1)
    before = len(history.engine.calls)
    history.settle()
    assert [type(entry) for entry in history.engine.calls[before:]] == [ReadTail, StartContainer]
    history.engine.observe_now(full=True)
    history.settle()
    assert len(history.engine.calls) == before + 2


def test_a_finished_one_keeps_its_record_and_is_at_rest(history: History) -> None:
    name = running(history, restartPolicy="Never")
    history.engine.say(name, "done\n")
    history.engine.exit(name, 0)
    history.settle()
    assert (record(history)["reason"], record(history)["logTail"]) == ("Completed", ["done"])
    assert history.condition("web", "Finished") == "True Completed"
    calls, revision = len(history.engine.calls), history.revision
    history.settle()
    assert (len(history.engine.calls), history.revision) == (calls, revision)


def test_an_engine_that_does_not_answer_is_asked_again_for_the_last_words(history: History) -> None:
    name = running(history)
    history.engine.say(name, "help\n")
    history.engine.fail_next(ReadTail, Waiting(2, "EngineUnreachable", "connection refused"))
    history.engine.exit(name, 1)
    history.settle()
    assert record(history)["logTail"] == ["help"]
    assert history.condition("web", "Ready") == "True Running"


def test_the_end_of_a_removed_container_is_known_by_what_the_engine_told(history: History) -> None:
    name = running(history)
    history.engine.remove(name)
    history.settle()
    document = record(history)
    assert (document["reason"], document["exitCode"]) == ("Killed", 137)
    assert "removed before" in document["logNote"]
    assert history.instances()[0].state.runs.crashes == 0


def test_a_replaced_container_was_superseded(history: History) -> None:
    name = running(history)
    history.engine.say(name, "bye\n")
    history.apply("web", template={"env": [{"name": "A", "value": "1"}]})
    history.settle()
    document = record(history)
    assert (document["reason"], document["logTail"], document["generation"]) == ("Superseded", ["bye"], 2)
    assert history.condition("web", "Ready") == "True Running"
    assert history.status("web")["restartCount"] == 0


@pytest.mark.parametrize("exit_code", [0, 137, 255])
@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_sandbox_lost_with_its_engine_starts_at_once_and_has_not_crashed(
    history: History, policy: str, exit_code: int
) -> None:
    name = running(history, restartPolicy=policy)
    for _ in range(4):
        history.engine.go_down("connection refused")
        history.settle(seconds=0)
        assert history.condition("web", "Ready") == "Unknown EngineUnreachable"
        history.engine.restart(exit_code=exit_code)
        history.clock.advance(3)
        history.engine.come_up()
        history.settle(seconds=0)
        assert record(history)["reason"] == "EngineLost"
        assert history.condition("web", "Ready") == "True Running"
    assert history.engine.container(name).started_at > 0
    memory = history.instances()[0].state
    assert (memory.runs.crashes, memory.runs.restarts) == (0, 4)


@pytest.mark.parametrize(("policy", "exit_code"), [("Always", 143), ("OnFailure", 0)])
def test_an_end_that_is_told_before_the_engine_goes_is_taken_back(
    history: History, policy: str, exit_code: int
) -> None:
    name = running(history, restartPolicy=policy)
    if policy == "Always":  # in its back-off: it is not started by the engine that goes
        history.engine.exit(name, 1)
        history.settle()
        history.clock.advance(60)
    crashes = history.instances()[0].state.runs.crashes
    history.engine.shut_down(exit_code)
    history.settle(seconds=0)
    assert record(history)["reason"] != "EngineLost"
    history.engine.go_down("connection refused")
    history.settle(seconds=0)
    history.engine.restart()
    history.engine.come_up()
    history.settle(seconds=0)
    assert record(history)["reason"] == "EngineLost"
    assert history.condition("web", "Ready") == "True Running"
    assert history.instances()[0].state.runs.crashes == crashes


def test_a_sandbox_lost_with_its_engine_is_finished_when_it_never_restarts(history: History) -> None:
    running(history, restartPolicy="Never")
    history.engine.restart()
    history.engine.come_up()
    history.settle()
    assert history.condition("web", "Finished") == "True EngineLost"


def test_one_that_ends_before_its_start_is_noted_has_ended_by_itself(history: History) -> None:
    """The engine notes a start once the process runs: an end can be some milliseconds older."""
    name = running(history, restartPolicy="OnFailure")
    for code, reason in ((3, "Error"), (0, "Completed")):
        history.engine.exit(name, code, early=0.004)
        history.settle(seconds=60)
        assert record(history)["reason"] == reason
    assert history.condition("web", "Finished") == "True Completed"
    memory = history.instances()[0].state
    assert (memory.runs.crashes, memory.runs.restarts) == (2, 1)


def test_an_end_that_the_engine_did_not_see_is_no_fault_of_the_sandbox(history: History) -> None:
    """The host went down under it: the engine has the end of the run before."""
    name = running(history)
    history.engine.exit(name, 0)
    finished = history.engine.container(name).finished_at
    history.settle(seconds=60)
    history.engine.exit(name, 0, early=history.engine.container(name).started_at - finished)
    history.settle(seconds=0)
    assert record(history)["reason"] == "EngineLost"
    memory = history.instances()[0].state
    assert (memory.runs.crashes, memory.runs.restarts) == (0, 2)


def test_a_lost_engine_forgives_no_crash(history: History) -> None:
    name = running(history)
    history.engine.exit(name, 1)
    history.settle()
    history.engine.restart()
    history.engine.come_up()
    history.settle(seconds=0)
    history.engine.exit(name, 1)
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "False CrashLoopBackOff"


def test_sandboxes_outlive_an_engine_with_live_restore(history: History) -> None:
    name = running(history)
    before = history.engine.container(name).pid
    calls = len(history.engine.calls)
    history.engine.go_down("connection refused")
    history.settle(seconds=0)
    history.engine.restart(live_restore=True)
    history.engine.come_up()
    history.settle()
    assert history.engine.container(name).pid == before
    assert len(history.engine.calls) == calls


def test_many_lost_sandboxes_are_started_again_and_none_is_made_anew(history: History) -> None:
    for at in range(12):
        history.apply(f"box-{at}")
    history.settle()
    calls = len(history.engine.calls)
    history.engine.restart()
    history.engine.come_up()
    history.settle()
    assert {type(entry) for entry in history.engine.calls[calls:]} == {ReadTail, StartContainer}
    assert {history.condition(f"box-{at}", "Ready") for at in range(12)} == {"True Running"}


def test_a_daemon_started_after_the_engine_knows_what_was_lost(history: History) -> None:
    running(history, restartPolicy="OnFailure")
    history.engine.restart(exit_code=0)
    history.engine.come_up()
    history.daemon()
    history.settle()
    assert record(history)["reason"] == "EngineLost"
    assert history.condition("web", "Ready") == "True Running"


def test_a_start_that_stays_blocked_gets_a_new_container(history: History) -> None:
    before = history.engine.container(running(history, restartPolicy="Always")).id
    blocked = Transient("StartBlocked", "pdk-web does not start: task 3a01: already exists")
    away = Transient("StartFailed", "pdk-web does not start: connection refused: unavailable")
    history.engine.fail_next(StartContainer, away, away, blocked, blocked, blocked)
    history.engine.exit(history.container_name("web"), 1)
    history.settle(seconds=4)
    assert history.condition("web", "Degraded") == "True StartBlocked"
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    assert history.engine.container(history.container_name("web")).id != before
    event = next(entry for entry in history.events_of("web") if entry.reason == "Recreating")
    assert (event.type, "root file system and to memory is lost" in event.message) == ("Warning", True)


def test_a_sandbox_without_limits_is_restarted(history: History) -> None:
    sandbox = history.engine.container(running(history, restartPolicy="Never"))
    start = sandbox.started_at
    history.engine.lose_cgroups(sandbox.name)
    history.engine.observe_now()
    history.run_pass()
    assert history.condition("web", "Resized") == "Unknown CgroupsLost"
    assert history.condition("web", "Ready") == "False Restarting"
    history.settle()
    assert history.condition("web", "Resized") == "True InForce"
    assert history.condition("web", "Secured") == "True Attested"
    assert history.condition("web", "Ready") == "True Running"
    again = history.engine.container(sandbox.name)
    assert (again.id, again.started_at > start) == (sandbox.id, True)
