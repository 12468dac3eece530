"""Leader lease: loop/fleet/leader.py, and a daemon whose lease has expired, which does nothing."""

import threading
from collections.abc import Iterator

import pytest

from controller.kinds.planning.action import Action, CreateContainer
from controller.loop.fleet.leader import LeaderLease, wait_to_lead
from controller.loop.workers import Workers
from controller.ports import NullMeter, StoreError
from tests.contract.store_backends import Backend
from tests.daemon import wait_for
from tests.loop.harness import LoopHarness


class Scripted:
    """A lease that answers as it is told; an exception is raised, the last answer stays."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.lapses = list(answers), 0

    def _next(self) -> object:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        self.lapses += answer == "late"
        return answer

    acquire = renew = _next

    def is_held(self) -> bool:
        return True

    def release(self) -> None: ...


class Counting(NullMeter):
    def __init__(self) -> None:
        self.counted: list[str] = []

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        self.counted.append(name)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAIT_SECONDS", "RENEW_SECONDS"):
        monkeypatch.setattr(f"controller.loop.fleet.leader.{name}", 0.001)


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def test_waiting_outlives_a_store_that_is_away_and_ends_when_told() -> None:
    stopping = threading.Event()
    assert wait_to_lead(Scripted("pid 7", StoreError("away"), "pid 7", ""), stopping) == ""
    assert wait_to_lead(Scripted("pid 7"), stopping, standby=False) == "pid 7"
    with pytest.raises(StoreError):
        wait_to_lead(Scripted(StoreError("away")), stopping)
    stopping.set()
    assert wait_to_lead(Scripted("pid 7"), stopping) == "pid 7"


def test_it_is_renewed_through_failures_and_its_loss_is_told_once() -> None:
    lost, meter = [], Counting()
    leading = LeaderLease(Scripted(True, StoreError("away"), True, False), meter, lambda: lost.append("lost"))
    leading.start()
    wait_for("it is lost", lambda: lost)
    leading.stop()
    assert lost == ["lost"]
    assert meter.counted == ["paddock_leader_lease_renew_failures_total"] * 2


def test_it_is_renewed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be started on another host is held from the first renewal on."""
    monkeypatch.setattr("controller.loop.fleet.leader.RENEW_SECONDS", 3600.0)
    leading = LeaderLease(Scripted(True), NullMeter(), lambda: None)
    leading.start()
    wait_for("it was renewed", lambda: leading.renewed_at)
    leading.stop()


def test_a_renewal_that_came_too_late_is_told() -> None:
    messages: list[str] = []
    lease = Scripted(True, "late", True, False)
    leading = LeaderLease(lease, NullMeter(), lambda: messages.append("lost"), lambda: messages.append("lapse"))
    leading.start()
    wait_for("it is over", lambda: "lost" in messages)
    leading.stop()
    assert messages == ["lapse", "lost"]


def test_without_the_lease_nothing_is_written_or_begun(harness: LoopHarness) -> None:
    harness.apply("web")
    revision, may_act = harness.store.revision(), [False]
    workers = Workers(harness.engine, NullMeter(), threads=1, wake=lambda: None)
    reconcile_pass = harness.pass_with(workers, may_act=lambda: may_act[0])
    with pytest.raises(StoreError, match="expired"):
        reconcile_pass.run()
    assert (harness.store.revision(), harness.engine.calls) == (revision, [])
    may_act[0] = True
    assert reconcile_pass.run().groups
    workers.stop()


def test_a_group_ends_when_the_lease_expires(harness: LoopHarness) -> None:
    """As in a process that is frozen between two engine calls, and wakes up late."""
    harness.apply("web")
    may_act = [True]

    def freeze(action: Action) -> None:
        may_act[0] = not isinstance(action, CreateContainer)

    harness.engine.before_act = freeze
    workers = Workers(harness.engine, NullMeter(), threads=1, wake=lambda: None, may_act=lambda: may_act[0])
    reconcile_pass = harness.pass_with(workers)
    reconcile_pass.run()
    wait_for("the group came back", lambda: workers.view()[1])
    workers.stop()
    assert [type(action) for action in harness.engine.calls] == [CreateContainer]
