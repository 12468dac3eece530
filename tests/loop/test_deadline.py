"""Limits of a sandbox's life: activeDeadlineSeconds, ttlSecondsAfterFinished; real store, fake engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.mcpserver import MCPServerSpec
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import StartContainer
from controller.policy.mcpserver import session_sandbox
from tests.contract.store_worlds import World
from tests.loop.harness import Crash, LoopHarness

DEADLINE: dict[str, Any] = {"activeDeadlineSeconds": 100, "shutdownGracePeriodSeconds": 5, "keepRunning": True}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store())
    yield made
    made.close()


def go_on(house: LoopHarness, seconds: float) -> None:
    """So much time goes by, with a pass whenever one is due."""
    end = house.clock.now() + seconds
    house.settle(seconds=seconds)
    house.clock.advance(max(0.0, end - house.clock.now()))
    house.settle(seconds=0)


def starts(house: LoopHarness) -> int:
    return sum(isinstance(each, StartContainer) for each in house.engine.calls)


def test_a_sandbox_is_stopped_for_good_when_its_deadline_passes(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE)
    house.settle(seconds=0)
    go_on(house, 99)
    assert house.condition("web", "Ready") == "True Running"
    go_on(house, 2)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"
    assert house.engine.box(house.container_name("web")).state is State.EXITED
    found = house.get("web")
    assert found is not None
    assert found.status["lastTermination"]["reason"] == "DeadlineExceeded"
    house.daemon()
    go_on(house, 10_000)
    house.engine.remove(house.container_name("web"))
    go_on(house, 10_000)
    assert starts(house) == 1
    assert house.condition("web", "Finished") == "True DeadlineExceeded"


def test_restarts_do_not_extend_it_and_a_daemon_that_comes_late_keeps_it(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE)
    house.settle(seconds=0)
    go_on(house, 60)
    house.engine.kill(house.container_name("web"))
    go_on(house, 20)
    assert house.condition("web", "Ready") == "True Running"
    house.clock.advance(500)
    house.daemon()
    go_on(house, 10)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"


def test_a_crash_loop_comes_to_an_end_at_the_deadline(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE, template={"command": ["false"]})
    house.settle(seconds=0)
    go_on(house, 101)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"
    before = starts(house)
    go_on(house, 1000)
    assert starts(house) == before


def test_a_new_generation_runs_for_as_long_again(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE)
    house.settle(seconds=0)
    go_on(house, 150)
    house.apply("web", lifecycle={**DEADLINE, "activeDeadlineSeconds": 50})
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("web", "Finished") == "False NotFinished"
    go_on(house, 49)
    assert house.condition("web", "Ready") == "True Running"
    go_on(house, 2)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"


def test_a_change_during_its_stop_lets_it_end_and_starts_it_again(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE)
    house.settle(seconds=0)
    house.engine.box(house.container_name("web")).ignores_term = True
    go_on(house, 101)
    assert house.condition("web", "Ready") == "False Stopping"
    house.apply("web", lifecycle={**DEADLINE, "activeDeadlineSeconds": 500})
    go_on(house, 10)
    assert house.condition("web", "Ready") == "True Running"
    assert starts(house) == 2
    go_on(house, 480)
    assert house.condition("web", "Ready") == "True Running"


def test_suspended_time_does_not_count(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE)
    house.settle(seconds=0)
    go_on(house, 60)
    house.apply("web", lifecycle=DEADLINE, runState="Suspended")
    go_on(house, 500)
    house.apply("web", lifecycle=DEADLINE)
    go_on(house, 99)
    assert house.condition("web", "Ready") == "True Running"
    go_on(house, 2)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"


def test_paused_time_counts(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE)
    house.settle(seconds=0)
    go_on(house, 60)
    house.apply("web", lifecycle=DEADLINE, runState="Paused")
    go_on(house, 39)
    assert house.condition("web", "Finished") == "False NotFinished"
    go_on(house, 2)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"
    assert house.engine.box(house.container_name("web")).state is State.EXITED


def test_the_deadline_of_a_sandbox_that_sleeps_passes_too(house: LoopHarness) -> None:
    house.engine.at_rest = True
    idle = {**DEADLINE, "keepRunning": False, "idleTimeoutSeconds": 20}
    house.apply("web", lifecycle=idle)
    house.settle(seconds=0)
    go_on(house, 30)
    assert house.condition("web", "Suspended") == "True IdleReaped"
    go_on(house, 75)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"
    assert house.condition("web", "Suspended") == "False NotSuspended"


@pytest.mark.parametrize("lifecycle", [{"keepRunning": True}, DEADLINE], ids=["completed", "deadline"])
def test_what_finished_is_deleted_when_its_time_is_over(house: LoopHarness, lifecycle: dict[str, Any]) -> None:
    house.apply("web", lifecycle={**lifecycle, "ttlSecondsAfterFinished": 300}, restartPolicy="Never")
    house.settle(seconds=0)
    go_on(house, 50)
    if "activeDeadlineSeconds" in lifecycle:
        go_on(house, 50.1)
    else:
        house.engine.exit(house.container_name("web"), 0)
        house.settle(seconds=0)
    assert house.condition("web", "Finished").startswith("True")
    go_on(house, 299)
    assert house.names() == ["web"]
    go_on(house, 2)
    assert (house.names(), house.ours(), list(house.store.instances())) == ([], {}, [])
    assert "TTLExpired" in [each.reason for each in house.store.events(name="web")]


@pytest.mark.parametrize("exit_code", [0, 137])
def test_dead_sandbox_of_an_mcp_session_goes(house: LoopHarness, exit_code: int) -> None:
    server = MCPServerSpec.model_validate({"command": "python3"})
    spec = session_sandbox("calc", server, name="calc-1", session="1")["spec"]
    house.engine.add_image(spec["template"]["image"])
    house.apply("calc-1", **spec)
    house.settle(seconds=0)
    house.engine.exit(house.container_name("calc-1"), exit_code)
    house.settle(seconds=0)
    assert (house.names(), house.ours()) == ([], {})


def test_what_finished_in_time_stays_so_and_runs_for_as_long_again(house: LoopHarness) -> None:
    house.apply("web", lifecycle=DEADLINE, restartPolicy="Never")
    house.settle(seconds=0)
    house.engine.exit(house.container_name("web"), 0)
    go_on(house, 500)
    house.daemon()
    go_on(house, 500)
    assert house.condition("web", "Finished") == "True Completed"
    house.apply("web", lifecycle=DEADLINE, restartPolicy="Never", template={"image": "other:1"})
    house.settle(seconds=0)
    go_on(house, 90)
    assert house.condition("web", "Ready") == "True Running"
    go_on(house, 11)
    assert house.condition("web", "Finished") == "True DeadlineExceeded"


def test_what_finished_stays_without_a_time(house: LoopHarness) -> None:
    house.apply("web", restartPolicy="Never")
    house.settle(seconds=0)
    house.engine.exit(house.container_name("web"), 1)
    house.settle(seconds=0)
    assert house.run_pass().next_wake is None


def test_a_clock_set_back_deletes_nothing_early(house: LoopHarness) -> None:
    house.apply("web", lifecycle={"keepRunning": True, "ttlSecondsAfterFinished": 300}, restartPolicy="Never")
    house.settle(seconds=0)
    house.engine.exit(house.container_name("web"), 0)
    house.settle(seconds=0)
    house.clock.advance(-10_000)
    go_on(house, 250)
    assert house.names() == ["web"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_daemon_killed_at_any_step_of_a_short_life_is_followed_by_one_that_ends_it(world: World, after: bool) -> None:
    store = world.store()
    for crash_at in range(1, 40):
        house = LoopHarness(store)
        house.fuse.blow_at, house.fuse.after = crash_at, after
        house.apply("web", lifecycle={**DEADLINE, "ttlSecondsAfterFinished": 50})
        blown = False
        try:
            go_on(house, 170)
        except Crash:
            blown = True
            house.daemon()
            go_on(house, 170)
        assert (house.names(), house.ours(), list(store.instances())) == ([], {}, []), f"step {crash_at}"
        house.close()
        if not blown:
            assert crash_at > 8
            return
    raise AssertionError("it never came to its end")
