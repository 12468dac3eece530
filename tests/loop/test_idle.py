"""Idleness over a real store and the fake engine: reaped in time, never while used, and woken by the next exec."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import SignalContainer, StartContainer
from controller.kinds.registry import Kind, discover
from controller.ports import StoreError, StreamError
from controller.service import errors
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness, killed_at_each_step

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    harness.engine.at_rest = True
    yield harness
    harness.close()


def sandbox() -> Kind:
    word = discover().by_word("sandbox")
    assert word is not None
    return word


def opened(harness: LoopHarness, name: str = "web", **options: Any) -> Callable[[], Iterator[Chunk]]:
    return harness.services.sandbox_streams.exec(sandbox(), "default", name, ["sh", "-c", "echo hello"], **options)


class Exec:
    """An exec as a listener's thread runs it: it may wait for a pass, and is told what came of it."""

    def __init__(self, harness: LoopHarness, **options: Any) -> None:
        self.harness, self.woken = harness, threading.Event()
        harness.wake = self.woken.set
        self.stream: Iterator[Chunk] | None = None
        self.error: Exception | None = None
        open_ = opened(harness, **options)
        self.thread = threading.Thread(target=self._run, args=(open_,), daemon=True)
        self.thread.start()
        assert self.woken.wait(30)

    def _run(self, open_: Callable[[], Iterator[Chunk]]) -> None:
        try:
            self.stream = open_()
        except StreamError as error:
            self.error = error

    def open_after_passes(self) -> "Exec":
        """Run passes, and let time go by, until it has begun (or failed)."""
        for _ in range(60):
            self.harness.settle(seconds=0)
            self.thread.join(0.1)
            if not self.thread.is_alive():
                return self
            self.harness.clock.advance(0.5)
        raise AssertionError("the exec still waits")

    def output(self) -> list[bytes]:
        assert self.stream is not None, self.error
        return [chunk.data for chunk in self.stream]


def starts(harness: LoopHarness) -> int:
    return sum(isinstance(entry, StartContainer) for entry in harness.engine.calls)


def state(harness: LoopHarness, name: str = "web") -> State:
    return harness.engine.container(harness.container_name(name)).state


def slept(harness: LoopHarness, **lifecycle: Any) -> None:
    """A sandbox that was suspended for idleness."""
    harness.apply("web", lifecycle={**IDLE, **lifecycle})
    harness.settle(seconds=0)
    harness.settle(seconds=70)
    assert state(harness) is State.EXITED


def go_on(harness: LoopHarness, seconds: float) -> None:
    """So much time goes by, with a pass whenever one is due."""
    end = harness.clock.now() + seconds
    harness.settle(seconds=seconds)
    harness.clock.advance(max(0.0, end - harness.clock.now()))
    harness.settle(seconds=0)


def memory(harness: LoopHarness) -> Any:
    return harness.store.instances()[0].state


def test_an_exec_wakes_it_and_runs(harness: LoopHarness) -> None:
    slept(harness)
    done = Exec(harness).open_after_passes()
    assert done.output() == [b"hello\n", b"0"]
    harness.settle(seconds=0)
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.condition("web", "Suspended") == "False NotSuspended"
    web = harness.get("web")
    assert web is not None
    assert web.status["restartCount"] == 0
    harness.settle(seconds=70)
    assert harness.condition("web", "Suspended") == "True IdleReaped"


def test_two_execs_at_once_wake_it_once(harness: LoopHarness) -> None:
    slept(harness)
    before = starts(harness)
    both = [Exec(harness), Exec(harness)]
    assert [entry.open_after_passes().output() for entry in both] == [[b"hello\n", b"0"]] * 2
    assert starts(harness) == before + 1


def test_an_open_stream_keeps_it_and_its_end_starts_the_clock(harness: LoopHarness) -> None:
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    streams = [opened(harness)(), harness.services.sandbox_streams.logs(sandbox(), "default", "web", follow=True)()]
    for stream in streams:
        go_on(harness, 1000)
        assert harness.condition("web", "Ready") == "True Running"
        list(stream)
    go_on(harness, 59)
    assert harness.condition("web", "Ready") == "True Running"
    go_on(harness, 2)
    assert harness.condition("web", "Suspended") == "True IdleReaped"


def test_logs_wake_nothing(harness: LoopHarness) -> None:
    slept(harness)
    for follow in (False, True):
        list(harness.services.sandbox_streams.logs(sandbox(), "default", "web", follow=follow)())
        harness.settle(seconds=0)
        assert state(harness) is State.EXITED


def test_an_exec_that_begins_while_the_reaper_decides_wins(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the plan's being held to, an exec begins: planned again, and nothing is stopped."""
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    harness.clock.advance(61)
    harness.run_pass()
    streams: list[Iterator[Chunk]] = []
    hold = harness.activity.hold

    def exec_first(runs: Any, seen: Any) -> bool:
        if runs and not streams:
            streams.append(opened(harness)())
        return hold(runs, seen)

    monkeypatch.setattr(harness.activity, "hold", exec_first)
    harness.settle(seconds=0)
    assert streams
    assert not any(isinstance(entry, SignalContainer) for entry in harness.engine.calls)
    assert [chunk.data for chunk in streams[0]] == [b"hello\n", b"0"]
    assert memory(harness).lifecycle.idled.generation == 0


def test_an_exec_that_comes_during_the_stop_waits_and_runs_in_the_next_run(harness: LoopHarness) -> None:
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    name = harness.container_name("web")
    harness.engine.container(name).ignores_term = True
    first = harness.engine.container(name).started_at
    harness.settle(seconds=61)
    assert harness.condition("web", "Ready") == "False Suspending"
    late = Exec(harness)
    harness.settle(seconds=0)
    assert late.thread.is_alive()
    assert late.open_after_passes().output() == [b"hello\n", b"0"]
    assert harness.engine.container(name).started_at > first
    assert harness.condition("web", "Ready") == "True Running"


def test_an_exec_right_behind_the_decision_does_not_begin_in_what_is_stopped(harness: LoopHarness) -> None:
    """The decision is stored, the signal is not sent yet."""
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    execs: list[Exec] = []

    def exec_now(action: object) -> None:
        if isinstance(action, SignalContainer) and not execs:
            execs.append(Exec(harness))

    harness.engine.before_act = exec_now
    harness.settle(seconds=61)
    assert execs[0].open_after_passes().output() == [b"hello\n", b"0"]
    assert starts(harness) == 2


def test_a_store_that_can_not_remember_stops_nothing_and_holds_nobody_up(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    go_on(harness, 59)
    harness.clock.advance(3)
    harness.run_pass()  # which samples its CPU

    def refuse(_writes: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(harness.store, "record", refuse)
    with pytest.raises(StoreError):
        harness.run_pass()
    assert not any(isinstance(entry, SignalContainer) for entry in harness.engine.calls)
    assert [chunk.data for chunk in opened(harness)()] == [b"hello\n", b"0"]


def test_an_exec_on_a_sandbox_that_was_suspended_by_its_spec_is_told_so(harness: LoopHarness) -> None:
    harness.apply("web", runState="Suspended", lifecycle=IDLE)
    harness.settle(seconds=0)
    harness.apply("web", lifecycle=IDLE)
    harness.settle(seconds=0)
    harness.apply("web", runState="Suspended", lifecycle=IDLE)
    harness.settle(seconds=0)
    with pytest.raises(errors.Conflict, match="runState is Suspended; set it to Running"):
        opened(harness)
    harness.settle(seconds=400)
    assert state(harness) is State.EXITED


def test_an_exec_that_waits_in_vain_says_for_what(harness: LoopHarness) -> None:
    slept(harness)
    waiting = Exec(harness)
    harness.delete("web")
    waiting.open_after_passes()
    assert "not found" in str(waiting.error) or "being deleted" in str(waiting.error)
    harness.settle()
    assert harness.activity.view({}) == {}


def test_use_is_stored_seldom_and_moves_no_version(harness: LoopHarness) -> None:
    harness.apply("web", lifecycle={**IDLE, "idleTimeoutSeconds": 1000})
    harness.settle(seconds=0)
    revision, version = harness.store.revision(), harness.store.instances()[0].version
    number = 0
    for _ in range(120):
        list(opened(harness)())
        harness.clock.advance(1)
        number += bool(harness.run_pass().writes)
    assert harness.store.revision() == revision
    assert 3 <= number <= 5
    assert harness.store.instances()[0].version == version + number


@pytest.mark.parametrize("open_at_the_crash", [False, True])
def test_after_a_crash_the_clock_goes_on_but_never_runs_out_early(
    harness: LoopHarness, open_at_the_crash: bool
) -> None:
    harness.apply("web", lifecycle={**IDLE, "idleTimeoutSeconds": 100})
    harness.settle(seconds=0)
    harness.clock.advance(50)
    stream = opened(harness)()
    harness.settle(seconds=0)
    if not open_at_the_crash:
        list(stream)
    go_on(harness, 40)
    harness.daemon()
    harness.settle(seconds=0)
    remaining = 100 if open_at_the_crash else 60
    go_on(harness, remaining - 1)
    assert harness.condition("web", "Ready") == "True Running"
    go_on(harness, 2)
    assert harness.condition("web", "Suspended") == "True IdleReaped"


@pytest.mark.parametrize("on_idle", ["Suspend", "Delete"])
def test_a_daemon_killed_while_it_reaps_is_followed(backend: Backend, harness: LoopHarness, on_idle: str) -> None:
    deeds = (
        lambda: harness.apply("web", lifecycle={**IDLE, "onIdle": on_idle}),
        lambda: harness.settle(seconds=130),
    )
    moments = 0
    for _ in killed_at_each_step(harness, backend.path(), *deeds):
        moments += 1
        harness.settle(seconds=130)
        if on_idle == "Delete":
            assert (harness.names(), harness.ours()) == ([], {}), f"moment {moments}"
        else:
            assert harness.condition("web", "Suspended") == "True IdleReaped", f"moment {moments}"
            assert state(harness) is State.EXITED
    assert moments > 5
