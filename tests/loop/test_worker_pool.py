"""Jobs on a bounded number of places, of which a call that hangs holds none."""

import threading
from collections.abc import Iterator

import pytest

from controller.loop.worker_pool import WorkerPool
from tests.conftest import HandClock
from tests.daemon import wait_for


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hold(crew: WorkerPool, over: threading.Event, begun: list[int], *, stalls_seconds: float | None) -> None:
    """A job that lasts until `over`."""

    def job() -> None:
        begun.append(1)
        if stalls_seconds is None:
            over.wait(60)
            return
        with crew.releasing_after(stalls_seconds):
            over.wait(60)

    crew.submit(job)


def test_hanging_calls_never_hold_all_places(over: threading.Event) -> None:
    crew, started, done = WorkerPool(2, "worker"), list[int](), threading.Event()
    for _ in range(6):
        hold(crew, over, started, stalls_seconds=0.01)
    crew.submit(done.set)
    wait_for("the job behind six that hang is done", done.is_set)
    assert len(started) == 6
    over.set()
    crew.stop()


def test_long_jobs_keep_their_places(over: threading.Event) -> None:
    clock = HandClock()
    crew, started, done = WorkerPool(2, "worker", ticks=clock.now), list[int](), threading.Event()
    hold(crew, over, started, stalls_seconds=None)
    hold(crew, over, started, stalls_seconds=3600)
    crew.submit(done.set)
    wait_for("both places are held", lambda: len(started) == 2)
    assert not done.is_set()
    over.set()
    wait_for("the third job is done", done.is_set)
    crew.stop()


def test_at_most_so_many_jobs_at_once() -> None:
    crew, lock, now, peak, done = WorkerPool(3, "worker"), threading.Lock(), 0, 0, threading.Semaphore(0)

    def job() -> None:
        nonlocal now, peak
        with lock:
            now += 1
            peak = max(peak, now)
        with crew.releasing_after(3600):
            threading.Event().wait(0.001)
        with lock:
            now -= 1
        done.release()

    for _ in range(200):
        crew.submit(job)
    assert all(done.acquire(timeout=60) for _ in range(200))
    assert 1 <= peak <= 3
    crew.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker"]


def test_a_job_that_raises_ends_no_thread(over: threading.Event) -> None:
    crew = WorkerPool(1, "worker")
    crew.submit(lambda: 1 / 0)
    crew.submit(over.set)
    assert over.wait(60)
    crew.stop()


def test_stopped_crew_takes_no_job_and_drops_what_waits(over: threading.Event) -> None:
    crew, started, late = WorkerPool(1, "worker"), list[int](), threading.Event()
    hold(crew, over, started, stalls_seconds=None)
    wait_for("it runs", lambda: started)
    crew.submit(late.set)
    stopping = threading.Thread(target=crew.stop)
    stopping.start()
    wait_for("it stops", lambda: crew._stopping)
    over.set()
    stopping.join(60)
    assert not stopping.is_alive()
    assert not late.is_set()
    with pytest.raises(RuntimeError, match="stopping"):
        crew.submit(late.set)
