"""Idleness over a real store and the fake engine: reaped in time, never while used, and woken by the next exec."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import SignalContainer, StartContainer
from controller.kinds.planning.plan import Plan
from controller.kinds.registry import Kind, discover
from controller.ports import StoreError, StreamError
from controller.service import errors
from tests.contract.store_worlds import World
from tests.loop.harness import Crash, LoopHarness

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    harness.engine.at_rest = True
    yield harness
    harness.close()


def sandbox() -> Kind:
    word = discover().by_word("sandbox")
    assert word is not None
    return word


def opened(house: LoopHarness, name: str = "web", **options: Any) -> Callable[[], Iterator[Chunk]]:
    return house.services.sandbox_streams.exec(sandbox(), "default", name, ["sh", "-c", "echo hello"], **options)


class Exec:
    """An exec as a listener's thread runs it: it may wait for a pass, and is told what came of it."""

    def __init__(self, house: LoopHarness, **options: Any) -> None:
        self.house, self.woken = house, threading.Event()
        house.wake = self.woken.set
        self.stream: Iterator[Chunk] | None = None
        self.error: Exception | None = None
        open_ = opened(house, **options)
        self.thread = threading.Thread(target=self._run, args=(open_,), daemon=True)
        self.thread.start()
        assert self.woken.wait(30)

    def _run(self, open_: Callable[[], Iterator[Chunk]]) -> None:
        try:
            self.stream = open_()
        except StreamError as error:
            self.error = error

    def turns_until_open(self) -> "Exec":
        """Turns, and time going by, until it has begun (or failed)."""
        for _ in range(60):
            self.house.settle(seconds=0)
            self.thread.join(0.1)
            if not self.thread.is_alive():
                return self
            self.house.clock.advance(0.5)
        raise AssertionError("the exec still waits")

    def output(self) -> list[bytes]:
        assert self.stream is not None, self.error
        return [chunk.data for chunk in self.stream]


def starts(house: LoopHarness) -> int:
    return sum(isinstance(entry, StartContainer) for entry in house.engine.calls)


def state(house: LoopHarness, name: str = "web") -> State:
    return house.engine.box(house.container_name(name)).state


def slept(house: LoopHarness, **lifecycle: Any) -> None:
    """A sandbox that was suspended for idleness."""
    house.apply("web", lifecycle={**IDLE, **lifecycle})
    house.settle(seconds=0)
    house.settle(seconds=70)
    assert state(house) is State.EXITED


def go_on(house: LoopHarness, seconds: float) -> None:
    """So much time goes by, with a pass whenever one is due."""
    end = house.clock.now() + seconds
    house.settle(seconds=seconds)
    house.clock.advance(max(0.0, end - house.clock.now()))
    house.settle(seconds=0)


def memory(house: LoopHarness) -> Any:
    return house.store.instances()[0].state


def test_a_sandbox_that_nobody_uses_is_suspended_when_its_time_is_over_and_not_before(house: LoopHarness) -> None:
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    start = house.clock.now()
    plan = house.run_pass()
    assert plan.next_wake == pytest.approx(start + 60, abs=0.1)
    house.clock.advance(59)
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"
    house.settle(seconds=3)
    assert house.condition("web", "Suspended") == "True IdleReaped"
    assert house.condition("web", "Ready") == "False IdleReaped"
    web = house.get("web")
    assert web is not None
    assert (web.spec["runState"], web.status["lastTermination"]["reason"]) == ("Running", "IdleReaped")
    assert web.status["restartCount"] == 0
    calls, revision = len(house.engine.calls), house.store.revision()
    house.settle(seconds=10_000)
    house.daemon()
    house.settle(seconds=10_000)
    assert (len(house.engine.calls), house.store.revision()) == (calls, revision)
    events = [event.reason for event in house.store.events(name="web")]
    assert events.count("IdleReaped") == 1


def test_an_exec_wakes_it_and_runs(house: LoopHarness) -> None:
    slept(house)
    done = Exec(house).turns_until_open()
    assert done.output() == [b"hello\n", b"0"]
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("web", "Suspended") == "False NotSuspended"
    web = house.get("web")
    assert web is not None
    assert web.status["restartCount"] == 0
    house.settle(seconds=70)
    assert house.condition("web", "Suspended") == "True IdleReaped"


def test_two_execs_at_once_wake_it_once(house: LoopHarness) -> None:
    slept(house)
    before = starts(house)
    both = [Exec(house), Exec(house)]
    assert [entry.turns_until_open().output() for entry in both] == [[b"hello\n", b"0"]] * 2
    assert starts(house) == before + 1


def test_a_change_of_the_spec_wakes_it(house: LoopHarness) -> None:
    slept(house)
    house.apply("web", lifecycle={**IDLE, "idleTimeoutSeconds": 61})
    house.settle(seconds=0)
    assert house.condition("web", "Ready") == "True Running"


def test_an_open_stream_keeps_it_and_its_end_starts_the_clock(house: LoopHarness) -> None:
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    streams = [opened(house)(), house.services.sandbox_streams.logs(sandbox(), "default", "web", follow=True)()]
    for stream in streams:
        go_on(house, 1000)
        assert house.condition("web", "Ready") == "True Running"
        list(stream)
    go_on(house, 59)
    assert house.condition("web", "Ready") == "True Running"
    go_on(house, 2)
    assert house.condition("web", "Suspended") == "True IdleReaped"


def test_logs_wake_nothing(house: LoopHarness) -> None:
    slept(house)
    for follow in (False, True):
        list(house.services.sandbox_streams.logs(sandbox(), "default", "web", follow=follow)())
        house.settle(seconds=0)
        assert state(house) is State.EXITED


def test_a_sandbox_that_computes_is_not_idle(house: LoopHarness) -> None:
    house.engine.at_rest = False
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=400)
    house.settle(seconds=400)
    assert house.condition("web", "Ready") == "True Running"
    house.engine.box(house.container_name("web")).at_rest = True
    house.settle(seconds=130)
    assert house.condition("web", "Suspended") == "True IdleReaped"


def test_what_can_not_be_measured_is_not_called_idle(house: LoopHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.engine, "cpu_seconds", lambda containers: {})
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=400)
    assert house.condition("web", "Ready") == "True Running"


def test_services_and_specs_from_before_the_timeout_are_never_idle(house: LoopHarness) -> None:
    house.apply("service", lifecycle={**IDLE, "keepRunning": True})
    house.apply("old")
    answer = house.get("old")
    assert answer is not None
    with house.store.transaction() as transaction:
        spec = {**answer.spec, "lifecycle": {"shutdownGracePeriodSeconds": 10}}
        transaction.put(replace(answer, spec=spec))
    house.settle(seconds=0)
    assert house.run_pass().next_wake is None


def test_delete_on_idle(house: LoopHarness) -> None:
    house.apply("web", lifecycle={**IDLE, "onIdle": "Delete"})
    house.settle(seconds=0)
    house.settle(seconds=70)
    assert (house.names(), house.ours(), list(house.store.instances())) == ([], {}, [])


def test_an_exec_that_begins_while_the_reaper_decides_wins(house: LoopHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the plan's being held to, an exec begins: planned again, and nothing is stopped."""
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    house.clock.advance(61)
    house.run_pass()
    streams: list[Iterator[Chunk]] = []
    hold = house.activity.hold

    def exec_first(runs: Any, seen: Any) -> bool:
        if runs and not streams:
            streams.append(opened(house)())
        return hold(runs, seen)

    monkeypatch.setattr(house.activity, "hold", exec_first)
    house.settle(seconds=0)
    assert streams
    assert not any(isinstance(entry, SignalContainer) for entry in house.engine.calls)
    assert [chunk.data for chunk in streams[0]] == [b"hello\n", b"0"]
    assert memory(house).idled_generation == 0


def test_an_exec_that_comes_during_the_stop_waits_and_runs_in_the_next_run(house: LoopHarness) -> None:
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    name = house.container_name("web")
    house.engine.box(name).ignores_term = True
    first = house.engine.box(name).started_at
    house.settle(seconds=61)
    assert house.condition("web", "Ready") == "False Suspending"
    late = Exec(house)
    house.settle(seconds=0)
    assert late.thread.is_alive()
    assert late.turns_until_open().output() == [b"hello\n", b"0"]
    assert house.engine.box(name).started_at > first
    assert house.condition("web", "Ready") == "True Running"


def test_an_exec_right_behind_the_decision_does_not_begin_in_what_is_stopped(house: LoopHarness) -> None:
    """The decision is stored, the signal is not sent yet."""
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    execs: list[Exec] = []

    def exec_now(action: object) -> None:
        if isinstance(action, SignalContainer) and not execs:
            execs.append(Exec(house))

    house.engine.before_act = exec_now
    house.settle(seconds=61)
    assert execs[0].turns_until_open().output() == [b"hello\n", b"0"]
    assert starts(house) == 2


def test_a_store_that_can_not_remember_stops_nothing_and_holds_nobody_up(
    house: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    go_on(house, 59)
    house.clock.advance(3)
    house.run_pass()  # which samples its CPU

    def refuse(_writes: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(house.store, "record", refuse)
    with pytest.raises(StoreError):
        house.run_pass()
    assert not any(isinstance(entry, SignalContainer) for entry in house.engine.calls)
    assert [chunk.data for chunk in opened(house)()] == [b"hello\n", b"0"]


def test_an_exec_on_a_sandbox_that_was_suspended_by_its_spec_is_told_so(house: LoopHarness) -> None:
    house.apply("web", runState="Suspended", lifecycle=IDLE)
    house.settle(seconds=0)
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    house.apply("web", runState="Suspended", lifecycle=IDLE)
    house.settle(seconds=0)
    with pytest.raises(errors.Conflict, match="runState is Suspended; set it to Running"):
        opened(house)
    house.settle(seconds=400)
    assert state(house) is State.EXITED


def test_an_exec_that_waits_in_vain_says_for_what(house: LoopHarness) -> None:
    slept(house)
    waiting = Exec(house)
    house.delete("web")
    waiting.turns_until_open()
    assert "not found" in str(waiting.error) or "being deleted" in str(waiting.error)
    house.settle()
    assert house.activity.view({}) == {}


def test_use_is_stored_seldom_and_moves_no_version(house: LoopHarness) -> None:
    house.apply("web", lifecycle={**IDLE, "idleTimeoutSeconds": 1000})
    house.settle(seconds=0)
    revision, version = house.store.revision(), house.store.instances()[0].version
    number = 0
    for _ in range(120):
        list(opened(house)())
        house.clock.advance(1)
        number += bool(house.run_pass().writes)
    assert house.store.revision() == revision
    assert 3 <= number <= 5
    assert house.store.instances()[0].version == version + number


@pytest.mark.parametrize("open_at_the_crash", [False, True])
def test_after_a_crash_the_clock_goes_on_but_never_runs_out_early(house: LoopHarness, open_at_the_crash: bool) -> None:
    house.apply("web", lifecycle={**IDLE, "idleTimeoutSeconds": 100})
    house.settle(seconds=0)
    house.clock.advance(50)
    stream = opened(house)()
    house.settle(seconds=0)
    if not open_at_the_crash:
        list(stream)
    go_on(house, 40)
    house.daemon()
    house.settle(seconds=0)
    remaining = 100 if open_at_the_crash else 60
    go_on(house, remaining - 1)
    assert house.condition("web", "Ready") == "True Running"
    go_on(house, 2)
    assert house.condition("web", "Suspended") == "True IdleReaped"


def test_a_clock_set_back_reaps_nothing_early(house: LoopHarness) -> None:
    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    house.clock.advance(-10_000)
    go_on(house, 50)
    assert house.condition("web", "Ready") == "True Running"


def test_a_settled_idle_sandbox_costs_the_planner_nothing(house: LoopHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    from controller.plan import host

    house.apply("web", lifecycle=IDLE)
    house.settle(seconds=0)
    planned: list[Plan] = []
    monkeypatch.setattr(host, "decide", lambda case: planned.append(case))
    assert house.run_pass().next_wake is not None
    assert planned == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("on_idle", ["Suspend", "Delete"])
def test_a_daemon_killed_at_any_step_of_a_reaping_is_followed_by_one_that_finishes(
    world: World, after: bool, on_idle: str
) -> None:
    store = world.store()
    for crash_at in range(1, 30):
        house = LoopHarness(store)
        house.engine.at_rest = True
        house.fuse.blow_at, house.fuse.after = crash_at, after
        house.apply("web", lifecycle={**IDLE, "onIdle": on_idle})
        blown = False
        try:
            house.settle(seconds=130)
        except Crash:
            blown = True
            house.daemon()
            house.settle(seconds=130)
        if on_idle == "Delete":
            assert (house.names(), house.ours()) == ([], {}), f"step {crash_at}"
        else:
            assert house.condition("web", "Suspended") == "True IdleReaped", f"step {crash_at}"
            assert state(house) is State.EXITED
            house.delete("web")
        house.daemon()
        house.settle()
        house.close()
        if not blown:
            assert crash_at > 5
            return
    raise AssertionError("it never came to its end")
