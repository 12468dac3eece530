"""Downtimes of the engine, and exits known from events only."""

import os
import socket
from pathlib import Path

import pytest

from controller.engine.docker.lifetime import EngineRun, engine_run_of, listens
from controller.engine.docker.view import View, ViewEntry
from controller.kinds.observed.observed import Container, End, HostFacts, State
from controller.kinds.runtime.container import Limits
from tests.conftest import HandClock

FIRST, SECOND = EngineRun(10, 100, 900.0), EngineRun(11, 200, 1500.0)
SANDBOX = ViewEntry(Container("c1", "pdk-a", "a", State.RUNNING), Limits(0, 0, 0), 1)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def view(clock: HandClock) -> View:
    created = View(clock)
    created.settle(created.ticket(), [], frozenset(), engine_run=FIRST)
    return created


def observe_now(view: View, engine_run: EngineRun | None) -> tuple[float, float]:
    view.settle(view.ticket(), [], frozenset(), engine_run=engine_run)
    return view.now.lost


def test_a_restarted_engine_was_down_since_last_observed(view: View, clock: HandClock) -> None:
    now = clock.now()
    clock.advance(60)
    assert observe_now(view, SECOND) == (now - 15, clock.now())


def test_a_slow_engine_has_no_downtime(view: View, clock: HandClock) -> None:
    before = view.now.lost
    view.blind("timed out")
    clock.advance(60)
    assert observe_now(view, FIRST) == before


def test_an_unidentified_engine_was_down_while_blind(view: View, clock: HandClock) -> None:
    now = clock.now()
    view.blind("connection refused")
    clock.advance(60)
    assert observe_now(view, None) == (now - 15, clock.now())


def test_live_restore_means_no_lost_containers(view: View) -> None:
    before = view.now.lost
    view.facts(HostFacts(live_restore=True))
    assert observe_now(view, SECOND) == before


def test_the_first_look_knows_when_the_engine_began(view: View) -> None:
    start, end = view.now.lost
    assert start < FIRST.began_at < end


def test_later_crashes_are_not_due_to_the_engine() -> None:
    clock = HandClock()
    created = View(clock)
    _, end = observe_now(created, EngineRun(10, 100, clock.now() - 2))
    assert end == clock.now()


def test_the_end_of_what_is_gone_is_kept(view: View) -> None:
    view.put(SANDBOX)
    view.died("c1", 137, 5.0)
    assert not view.now.ends
    view.forget("c1")
    assert view.now.ends == {"c1": End(137, 5.0)}


def test_a_late_exit_event_is_recorded(view: View) -> None:
    view.put(SANDBOX)
    view.forget("c1")
    view.died("c1", 1, 5.0)
    assert view.now.ends == {"c1": End(1, 5.0)}


def test_the_engine_run_is_the_listeners(tmp_path: Path) -> None:
    path, proc = tmp_path / "engine.sock", tmp_path / "proc"
    folder = proc / str(os.getpid())
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{os.getpid()} (docker) d) S " + " ".join(str(at) for at in range(4, 50)))
    (proc / "stat").write_text("cpu 1 2 3\nbtime 1000\n")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        (folder / "comm").write_text("dockerd\n")
        engine_run = engine_run_of(f"unix://{path}", proc=proc)
        assert engine_run == EngineRun(os.getpid(), 22, 1000 + 22 / os.sysconf("SC_CLK_TCK"))
        (folder / "comm").write_text("something\n")
        assert engine_run_of(f"unix://{path}", proc=proc) is None
    assert engine_run_of(f"unix://{path}", proc=proc) is None
    assert engine_run_of("tcp://127.0.0.1:1", proc=proc) is None


def test_listens_for_live_stale_and_missing_sockets(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    assert not listens(f"unix://{path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        assert not listens(f"unix://{path}"), "it takes no connections yet"
        listener.listen()
        assert listens(f"unix://{path}")
    assert path.exists()
    assert not listens(f"unix://{path}"), "whoever made it has gone"


def test_a_remote_engine_may_listen() -> None:
    assert listens("tcp://127.0.0.1:1")
