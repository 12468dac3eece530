"""Limits of a sandbox's life: activeDeadlineSeconds, ttlSecondsAfterFinished."""

from typing import Any

import pytest

from controller.kinds.mcpserver import MCPServerSpec
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import StartContainer
from controller.policy.mcpserver import session_sandbox
from tests.plan.history import History

DEADLINE: dict[str, Any] = {"activeDeadlineSeconds": 100, "shutdownGracePeriodSeconds": 5, "keepRunning": True}


def starts(history: History) -> int:
    return sum(isinstance(entry, StartContainer) for entry in history.engine.calls)


def test_a_sandbox_is_stopped_for_good_when_its_deadline_passes(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE)
    history.settle(seconds=0)
    history.go_on(99)
    assert history.condition("web", "Ready") == "True Running"
    history.go_on(2)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"
    assert history.engine.container(history.container_name("web")).state is State.EXITED
    assert history.status("web")["lastTermination"]["reason"] == "DeadlineExceeded"
    history.daemon()
    history.go_on(10_000)
    history.engine.remove(history.container_name("web"))
    history.go_on(10_000)
    assert starts(history) == 1
    assert history.condition("web", "Finished") == "True DeadlineExceeded"


def test_restarts_do_not_extend_it_and_a_daemon_that_comes_late_keeps_it(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE)
    history.settle(seconds=0)
    history.go_on(60)
    history.engine.kill(history.container_name("web"))
    history.go_on(20)
    assert history.condition("web", "Ready") == "True Running"
    history.clock.advance(500)
    history.daemon()
    history.go_on(10)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"


def test_a_crash_loop_comes_to_an_end_at_the_deadline(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE, template={"command": ["false"]})
    history.settle(seconds=0)
    history.go_on(101)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"
    before = starts(history)
    history.go_on(1000)
    assert starts(history) == before


def test_a_new_generation_runs_for_as_long_again(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE)
    history.settle(seconds=0)
    history.go_on(150)
    history.apply("web", lifecycle={**DEADLINE, "activeDeadlineSeconds": 50})
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "True Running"
    assert history.condition("web", "Finished") == "False NotFinished"
    history.go_on(49)
    assert history.condition("web", "Ready") == "True Running"
    history.go_on(2)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"


def test_a_change_during_its_stop_lets_it_end_and_starts_it_again(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE)
    history.settle(seconds=0)
    history.engine.container(history.container_name("web")).ignores_term = True
    history.go_on(101)
    assert history.condition("web", "Ready") == "False Stopping"
    history.apply("web", lifecycle={**DEADLINE, "activeDeadlineSeconds": 500})
    history.go_on(10)
    assert history.condition("web", "Ready") == "True Running"
    assert starts(history) == 2
    history.go_on(480)
    assert history.condition("web", "Ready") == "True Running"


def test_suspended_time_does_not_count(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE)
    history.settle(seconds=0)
    history.go_on(60)
    history.apply("web", lifecycle=DEADLINE, runState="Suspended")
    history.go_on(500)
    history.apply("web", lifecycle=DEADLINE)
    history.go_on(99)
    assert history.condition("web", "Ready") == "True Running"
    history.go_on(2)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"


def test_paused_time_counts(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE)
    history.settle(seconds=0)
    history.go_on(60)
    history.apply("web", lifecycle=DEADLINE, runState="Paused")
    history.go_on(39)
    assert history.condition("web", "Finished") == "False NotFinished"
    history.go_on(2)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"
    assert history.engine.container(history.container_name("web")).state is State.EXITED


@pytest.mark.parametrize("lifecycle", [{"keepRunning": True}, DEADLINE], ids=["completed", "deadline"])
def test_what_finished_is_deleted_when_its_time_is_over(history: History, lifecycle: dict[str, Any]) -> None:
    history.apply("web", lifecycle={**lifecycle, "ttlSecondsAfterFinished": 300}, restartPolicy="Never")
    history.settle(seconds=0)
    history.go_on(50)
    if "activeDeadlineSeconds" in lifecycle:
        history.go_on(50.1)
    else:
        history.engine.exit(history.container_name("web"), 0)
        history.settle(seconds=0)
    assert history.condition("web", "Finished").startswith("True")
    history.go_on(299)
    assert history.names() == ["web"]
    history.go_on(2)
    assert (history.names(), history.containers(), list(history.instances())) == ([], {}, [])
    assert "TTLExpired" in [event.reason for event in history.events_of("web")]


@pytest.mark.parametrize("exit_code", [0, 137])
def test_dead_sandbox_of_an_mcp_session_goes(history: History, exit_code: int) -> None:
    server = MCPServerSpec.model_validate({"command": "python3"})
    spec = session_sandbox("calc", server, name="calc-1", session="1")["spec"]
    history.engine.add_image(spec["template"]["image"])
    history.apply("calc-1", **spec)
    history.settle(seconds=0)
    history.engine.exit(history.container_name("calc-1"), exit_code)
    history.settle(seconds=0)
    assert (history.names(), history.containers()) == ([], {})


def test_what_finished_in_time_stays_so_and_runs_for_as_long_again(history: History) -> None:
    history.apply("web", lifecycle=DEADLINE, restartPolicy="Never")
    history.settle(seconds=0)
    history.engine.exit(history.container_name("web"), 0)
    history.go_on(500)
    history.daemon()
    history.go_on(500)
    assert history.condition("web", "Finished") == "True Completed"
    history.apply("web", lifecycle=DEADLINE, restartPolicy="Never", template={"image": "other:1"})
    history.settle(seconds=0)
    history.go_on(90)
    assert history.condition("web", "Ready") == "True Running"
    history.go_on(11)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"


def test_what_finished_stays_without_a_time(history: History) -> None:
    history.apply("web", restartPolicy="Never")
    history.settle(seconds=0)
    history.engine.exit(history.container_name("web"), 1)
    history.settle(seconds=0)
    assert history.run_pass().next_wake is None


def test_a_clock_set_back_deletes_nothing_early(history: History) -> None:
    history.apply("web", lifecycle={"keepRunning": True, "ttlSecondsAfterFinished": 300}, restartPolicy="Never")
    history.settle(seconds=0)
    history.engine.exit(history.container_name("web"), 0)
    history.settle(seconds=0)
    history.clock.advance(-10_000)
    history.go_on(250)
    assert history.names() == ["web"]


def test_the_deadline_of_a_sandbox_that_sleeps_passes_too(history: History) -> None:
    history.engine.at_rest = True
    idle = {**DEADLINE, "keepRunning": False, "idleTimeoutSeconds": 20}
    history.apply("web", lifecycle=idle)
    history.settle(seconds=0)
    history.go_on(30)
    assert history.condition("web", "Suspended") == "True IdleReaped"
    history.go_on(75)
    assert history.condition("web", "Finished") == "True DeadlineExceeded"
    assert history.condition("web", "Suspended") == "False NotSuspended"
