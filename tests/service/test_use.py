"""Streams as use of a sandbox: it starts before the stream opens, and ends exactly once with the stream."""

import threading
from collections.abc import Callable, Iterator

import pytest

from controller.kinds.common.chunk import Chunk
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.registry import discover
from controller.loop.activity import ActivityLog
from controller.ports import StreamError
from controller.service import errors
from controller.service.exec.activity import ActivityTracker
from tests.conftest import HandClock
from tests.helpers_api import ApiStack, Endless, View

UID = "a-uid"


class Activity:
    """One sandbox's activity, and the number of wakes of the loop."""

    def __init__(self) -> None:
        self.log = ActivityLog(HandClock())
        self.woken = 0
        self.used = ActivityTracker(in_use=self.log, engine=View(), wake=self._wake)  # type: ignore[arg-type]

    def _wake(self) -> None:
        self.woken += 1

    def open(self) -> tuple[int, int]:
        view = self.log.view({UID}).get(UID)
        return (view.open, view.asking) if view else (0, 0)

    def stream(self, open_: Callable[[], Iterator[Chunk]]) -> Iterator[Chunk]:
        return self.used.stream(UID, open_, wakes=True)


@pytest.fixture
def activity() -> Activity:
    return Activity()


def breaking() -> Iterator[Chunk]:
    yield Chunk("stdout", b"a")
    raise StreamError("the engine went away")


def test_use_ends_once_with_the_stream(activity: Activity) -> None:
    stream = activity.stream(lambda: iter((Chunk("exit", b"0"),)))
    assert (activity.open(), activity.woken) == ((1, 1), 1)
    assert [chunk.data for chunk in stream] == [b"0"]
    stream.close()  # type: ignore[attr-defined]
    assert (activity.open(), activity.woken) == ((0, 0), 2)


def test_use_ends_with_a_broken_or_unopened_stream(activity: Activity) -> None:
    with pytest.raises(StreamError):
        list(activity.stream(breaking))
    assert activity.open() == (0, 0)

    def refused() -> Iterator[Chunk]:
        assert activity.open() == (1, 1)
        raise StreamError("no")

    with pytest.raises(StreamError):
        activity.stream(refused)
    assert activity.open() == (0, 0)


def test_use_ends_when_another_thread_closes_the_stream(activity: Activity) -> None:
    stream = activity.stream(lambda: Endless(threading.Event()))
    threading.Thread(target=stream.close, daemon=True).start()  # type: ignore[attr-defined]
    assert [chunk.data for chunk in stream] == [b"first\n"]
    assert activity.open() == (0, 0)


def test_a_use_waits_for_the_first_look_and_two_passes() -> None:
    engine, log, wakes = View(), ActivityLog(HandClock()), []
    engine.seen = Observation()

    def wake() -> None:
        wakes.append(1)
        log.pass_ended()

    tracker = ActivityTracker(in_use=log, engine=engine, wake=wake, wake_now=wake)  # type: ignore[arg-type]
    tracker.await_first_look(0)
    assert len(wakes) == 2, "not observed in time: the use says why it can't be"

    def look() -> None:
        engine.seen = Observation(blind="")
        log.pass_ended()

    wakes.clear()
    threading.Timer(0.05, look).start()
    tracker.await_first_look(60)
    assert (len(wakes), engine.seen.blind) == (2, "")
    tracker.await_first_look(60)
    assert len(wakes) == 2, "once it is observed no use waits"


def test_who_waits_for_a_queued_one_sleeps_on() -> None:
    log = ActivityLog(HandClock())
    log.pass_ended(frozenset({UID}))
    assert not log.wait(0, 0.0, UID), "it waits for its turn, as in the pass before"
    assert log.wait(0, 0.0, "another")
    assert log.wait(0, 0.0)
    log.pass_ended()
    assert log.wait(1, 0.0, UID)


def sandbox(ready: str, status: str = "False", **fields: object) -> StoredObject:
    conditions = [{"type": "Ready", "status": status, "reason": ready}]
    spec = {"runState": fields.pop("runState", "Running")}
    return StoredObject("Sandbox", "default", "web", UID, spec, status={"conditions": conditions}, **fields)  # type: ignore[arg-type]


RUNS = Container("c", "pdk-web", UID, State.RUNNING, started_at=1.0)


def test_a_running_sandbox_is_usable_unless_being_reaped(activity: Activity) -> None:
    assert activity.used.may_use(sandbox("Running", "True"), RUNS)
    assert not activity.used.may_use(sandbox("Suspending"), RUNS)
    activity.log.hold({UID: ("c", 1.0)}, {})
    assert not activity.used.may_use(sandbox("Running", "True"), RUNS)
    assert activity.used.may_use(
        sandbox("Running", "True"), Container("c", "pdk-web", UID, State.RUNNING, started_at=2.0)
    )


def test_waiting_fails_at_once_or_at_the_deadline(activity: Activity) -> None:
    with pytest.raises(StreamError, match="does not run: CrashLoopBackOff"):
        activity.used.running(lambda: (sandbox("CrashLoopBackOff"), None), 30)
    with pytest.raises(StreamError, match="is being deleted"):
        activity.used.running(lambda: (sandbox("IdleReaped", deleted_at=1.0), None), 30)
    with pytest.raises(StreamError, match="set it to Running first"):
        activity.used.running(lambda: (sandbox("Suspended", runState="Suspended"), None), 30)
    for reason in ("IdleReaped", "Creating", "Removing"):  # the last two: somebody removes its container
        with pytest.raises(StreamError, match=f"did not start within 0.01 s: {reason}"):
            activity.used.running(lambda reason=reason: (sandbox(reason), None), 0.01)  # type: ignore[misc]

    def gone() -> tuple[StoredObject, Container | None]:
        raise errors.NotFound("sandbox `web` not found")

    with pytest.raises(StreamError, match="not found"):
        activity.used.running(gone, 30)


def test_a_recreated_sandbox_is_not_entered(api: ApiStack) -> None:
    kind = discover().by_word("sandbox")
    assert kind is not None
    api.apply()
    api.view.show(api.sandbox())
    open_ = api.services.sandbox_streams.exec(kind, "default", "quickstart", ["true"])
    api.finish_deletion()
    api.apply()
    with pytest.raises(StreamError, match="recreated"):
        open_()


def test_reaping_and_use_never_both_win() -> None:
    for _ in range(200):
        log = ActivityLog(HandClock())
        view, run, results = log.view({UID}), ("c", 1.0), {}
        start = threading.Barrier(2)

        def reap(log: ActivityLog = log, seen=view, run=run, results=results, start=start) -> None:  # type: ignore[no-untyped-def]
            start.wait()
            results["held"] = log.hold({UID: run}, seen)

        thread = threading.Thread(target=reap)
        thread.start()
        start.wait()
        log.begin(UID, wakes=True)
        entered = log.stopping_run(UID) != run
        thread.join()
        assert not (entered and results["held"])
