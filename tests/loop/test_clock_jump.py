"""The wall clock is set: idle time goes on, and the schedule starts over."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.observed.observed import State
from controller.loop.clock_jump import ClockJump
from controller.loop.schedule import Schedule
from controller.ports import NullMeter
from tests.conftest import HandClock
from tests.contract.store_backends import Backend
from tests.daemon import wait_for
from tests.loop.harness import LoopHarness

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 0}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    harness.engine.at_rest = True
    yield harness
    harness.close()


def uid(harness: LoopHarness) -> str:
    web = harness.get("web")
    assert web is not None
    return web.uid


def test_the_passing_of_time_is_no_clock_jump() -> None:
    clock, ticks, reported = HandClock(), HandClock(5.0), []
    leap = ClockJump(clock, tell=lambda: reported.append(1), ticks=ticks.now)
    for _ in range(3):
        clock.advance(1000)
        ticks.advance(1001)
        assert not leap.jumped()
    assert reported == []


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_jump_is_noticed_once(seconds: float) -> None:
    clock, ticks, reported = HandClock(), HandClock(5.0), []
    leap = ClockJump(clock, tell=lambda: reported.append(1), ticks=ticks.now)
    clock.advance(seconds)
    assert [leap.jumped(), leap.jumped(), reported] == [seconds, 0, [1]]


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_that_is_set_stops_no_sandbox(harness: LoopHarness, seconds: float) -> None:
    harness.ticks = HandClock().now
    harness.daemon()
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    harness.clock.advance(seconds)
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "True Running"


@pytest.mark.parametrize("seconds", [3600, -3600])
@pytest.mark.parametrize("is_used", [False, True], ids=["started", "used"])
def test_idle_time_goes_on_across_a_clock_jump(harness: LoopHarness, seconds: float, is_used: bool) -> None:
    ticks = HandClock()
    harness.ticks = ticks.now
    harness.daemon()
    harness.apply("web", lifecycle={**IDLE, "idleTimeoutSeconds": 200})
    harness.settle(seconds=0)
    sandbox = harness.engine.container(harness.container_name("web"))

    def go_on(seconds: int) -> None:
        for _ in range(seconds):
            harness.clock.advance(1)
            ticks.advance(1)
            harness.settle(seconds=0)

    go_on(30)
    if is_used:
        harness.activity.begin(uid(harness), wakes=False)
        harness.activity.end(uid(harness), wakes=False)
        harness.settle(seconds=0)
    go_on(70)
    for jump in (seconds, -seconds / 2):  # the second time, it was moved before
        harness.clock.advance(jump)
        harness.settle(seconds=0)
        go_on(10)
    harness.daemon()  # what is stored has moved, too
    go_on(105 if is_used else 75)
    assert sandbox.state is State.RUNNING
    go_on(10)
    assert sandbox.state is State.EXITED
    assert harness.condition("web", "Suspended") == "True IdleReaped"


def test_short_idle_time_goes_on_too(harness: LoopHarness) -> None:
    ticks = HandClock()
    harness.ticks = ticks.now
    harness.daemon()
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    sandbox = harness.engine.container(harness.container_name("web"))
    for second in range(62):
        assert sandbox.state is State.RUNNING or second > 59
        harness.clock.advance(1 - 3600 * (second == 30))
        ticks.advance(1)
        harness.settle(seconds=0)
    assert sandbox.state is State.EXITED


def test_a_use_right_after_the_clock_jump_counts(harness: LoopHarness) -> None:
    ticks = HandClock()
    harness.ticks = ticks.now
    harness.daemon()
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    harness.clock.advance(-3600)
    harness.activity.begin(uid(harness), wakes=False)
    harness.activity.end(uid(harness), wakes=False)
    harness.settle(seconds=0)
    for _ in range(55):
        harness.clock.advance(1)
        ticks.advance(1)
        harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "True Running"


def test_a_schedule_that_is_reset_is_due_at_once() -> None:
    ran: list[int] = []
    schedule = Schedule(NullMeter())
    schedule.every("rare", 10_000, 0, lambda: ran.append(1))
    schedule.start()
    try:
        assert ran == []
        schedule.reset()
        wait_for("it ran", lambda: ran)
    finally:
        schedule.stop()


def test_a_schedule_stops_while_a_job_is_ending() -> None:
    runs = threading.Event()
    schedule = Schedule(NullMeter())
    stopping = threading.Thread(target=schedule.stop, daemon=True)

    def job() -> None:
        runs.set()
        wait_for("somebody stops it", lambda: stopping.ident)
        stopping.join(0.2)  # which waits for this job: time enough to begin with it

    schedule.every("slow", 10_000, 0, job)
    schedule.start()
    schedule.reset()
    assert runs.wait(30)
    stopping.start()
    stopping.join(30)
    assert not stopping.is_alive()
