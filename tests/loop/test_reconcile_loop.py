"""The thread of the passes: it starts and stops cleanly, survives a lost store and a bug, and does what falls due."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import Snapshot
from controller.loop.reconcile_loop import ReconcileLoop
from controller.loop.reconcile_pass import ReconcilePass
from controller.loop.tasks.prober import Prober
from controller.loop.wake import LoopWaker
from controller.loop.workers import Workers
from controller.policy.levels.levels import Policy
from controller.ports import NullMeter, StoreError
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.contract.store_backends import Backend, insert
from tests.daemon import wait_for
from tests.fakes.engine import TINY, FakeEngine


@dataclass
class MarkedJobs:
    """ports.Jobs whose time comes when the test says so."""

    marks: dict[str, Callable[[], None]] = field(default_factory=dict)
    running: bool = False

    def every(self, job_id: str, seconds: float, jitter_seconds: float, mark: Callable[[], None]) -> None:
        self.marks[job_id] = mark

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False


class RecordingWaker(LoopWaker):
    """A waker that records for how long the loop wanted to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, seconds: float | None) -> bool:
        self.waits.append(seconds)
        return super().wait(seconds)


class Troubled:
    """A pass that fails as it is told, and otherwise does what the real one does."""

    def __init__(self, reconcile_pass: ReconcilePass) -> None:
        self._reconcile_pass = reconcile_pass
        self.broken: Exception | None = None
        self.passes = 0

    def run(self) -> Plan:
        self.passes += 1
        if self.broken is not None:
            raise self.broken
        return self._reconcile_pass.run()

    @property
    def last(self) -> Snapshot | None:
        return self._reconcile_pass.last


@dataclass
class Body:
    reconcile_loop: ReconcileLoop
    reconcile_pass: Troubled
    workers: Workers
    jobs: MarkedJobs
    engine: FakeEngine
    store: SqlStore
    waker: RecordingWaker
    loads: list[int]  # passes before each that was run as one that loads


@pytest.fixture
def body(backend: Backend) -> Iterator[Body]:
    store, clock, waker, jobs = backend.store(), HandClock(), RecordingWaker(), MarkedJobs()
    engine = FakeEngine(store.instance_id, clock=clock)
    workers = Workers(engine, NullMeter(), threads=2, wake=waker.wake)
    prober = Prober(engine.probes, clock=clock, wake=waker.wake)
    created = ReconcilePass(
        store=store,
        engine=engine,
        workers=workers,
        prober=prober,
        clock=clock,
        meter=NullMeter(),
        policy=Policy(),
    )
    reconcile_pass, loads = Troubled(created), []

    @contextmanager
    def loading() -> Iterator[None]:
        loads.append(reconcile_pass.passes)
        yield

    reconcile_loop = ReconcileLoop(
        reconcile_pass=reconcile_pass,  # type: ignore[arg-type]
        waker=waker,
        workers=workers,
        engine=engine,
        store=store,
        jobs=jobs,
        clock=clock,
        meter=NullMeter(),
        resync_seconds=30,
        loading=loading,
    )
    yield Body(reconcile_loop, reconcile_pass, workers, jobs, engine, store, waker, loads)
    reconcile_loop.stop()


def test_it_runs_at_the_start_and_ends_with_its_thread(body: Body) -> None:
    assert body.reconcile_loop.failure
    body.reconcile_loop.start()
    wait_for("the first pass", lambda: not body.reconcile_loop.failure)
    assert body.jobs.running
    body.reconcile_loop.stop()
    assert not body.jobs.running
    assert "reconcile-loop" not in {entry.name for entry in threading.enumerate()}


def test_passes_load_until_one_has_decided(body: Body) -> None:
    body.reconcile_pass.broken = StoreError("disk full")
    body.reconcile_loop.start()
    wait_for("it says so", lambda: body.reconcile_loop.failure == "disk full")
    body.reconcile_pass.broken = None
    wait_for("it is over", lambda: not body.reconcile_loop.failure)
    passes = body.reconcile_pass.passes
    body.waker.wake()
    wait_for("another pass", lambda: body.reconcile_pass.passes > passes)
    assert len(body.loads) > 1
    assert body.loads == list(range(len(body.loads)))
    assert len(body.loads) <= passes


def test_no_pass_follows_a_new_start_at_once(body: Body) -> None:
    """It would take the processor from the worker that carries the start out, whose end wakes the loop anyway."""
    body.reconcile_loop.start()
    wait_for("nothing is to be done", lambda: body.waker.waits[-1:] == [30])
    insert(body.store, StoredObject("Sandbox", "default", "a", "a-uid", spec={"template": {"image": TINY}}))
    passes = len(body.waker.waits)
    body.waker.wake_now()
    wait_for("it is begun", lambda: len(body.waker.waits) > passes)
    assert body.reconcile_pass.last is not None
    assert "a-uid" in body.reconcile_pass.last.desired.sandboxes
    assert body.waker.waits[passes] != 0.0


def test_nothing_is_gathered_once_somebody_waits() -> None:
    waker = LoopWaker()
    waker.wake()
    waker.wake_now()
    assert waker.wait(0)
    waker.gather(3600)
    assert not waker.wait(0), "both are used up"


def test_a_lost_store_is_told_and_tried_again(body: Body) -> None:
    body.reconcile_pass.broken = StoreError("disk full")
    body.reconcile_loop.start()
    wait_for("it says so", lambda: body.reconcile_loop.failure == "disk full")
    body.reconcile_pass.broken = None
    wait_for("it is over", lambda: not body.reconcile_loop.failure)


def test_a_bug_does_not_stop_the_heart(body: Body) -> None:
    body.reconcile_loop.start()
    wait_for("the first pass", lambda: not body.reconcile_loop.failure)
    body.reconcile_pass.broken = ZeroDivisionError("oops")
    body.waker.wake()
    wait_for("it says so", lambda: "ZeroDivisionError: oops" in body.reconcile_loop.failure)
    body.reconcile_pass.broken = None
    wait_for("it goes on", lambda: not body.reconcile_loop.failure)


def test_what_falls_due_is_done(body: Body) -> None:
    body.reconcile_loop.start()
    wait_for("the first pass", lambda: not body.reconcile_loop.failure)
    looks = len(body.engine.looks)
    body.jobs.marks["resync"]()
    wait_for("a look", lambda: len(body.engine.looks) > looks)
    assert body.engine.looks[-1] is False
    body.jobs.marks["prune"]()
    assert body.store.ping() == ""


def test_a_host_without_another_thread_does_not_stop_the_heart(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    body.reconcile_loop.start()
    wait_for("the first pass", lambda: not body.reconcile_loop.failure)
    event = threading.Event()

    def no_thread(_: Callable[[], object]) -> None:
        event.set()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(body.workers, "run", no_thread)
        body.jobs.marks["prune"]()
        assert event.wait(30)
    before = body.reconcile_pass.passes

    def pass_ended() -> bool:
        body.waker.wake()
        return body.reconcile_pass.passes > before + 1  # one may be that of the prune

    wait_for("it goes on", pass_ended)
    assert body.reconcile_loop.failure == ""


def test_a_service_manager_hears_that_it_is_ready_lives_and_stops(
    body: Body, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        body.reconcile_loop.start()
        assert {heard.recv(100) for _ in range(2)} == {b"READY=1\nSTATUS=", b"WATCHDOG=1"}
        body.waker.wake()  # as the schedule does every few seconds
        assert heard.recv(100) == b"WATCHDOG=1"
        body.reconcile_loop.stop()
        answer = heard.recv(100)
        while answer == b"WATCHDOG=1":
            answer = heard.recv(100)
        assert answer == b"STOPPING=1"
