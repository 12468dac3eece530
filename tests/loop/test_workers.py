"""Outcome of a group of actions, and the time of the loop's next look at it."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from controller.kinds.meta import ObjectRef
from controller.kinds.planning.action import Action, ReadTail, RenameContainer
from controller.kinds.planning.plan import Group, Plan
from controller.loop.workers import Workers
from controller.ports import NullMeter
from tests.contract.store_backends import Backend
from tests.daemon import wait_for
from tests.loop.harness import LoopHarness
from tests.threads import no_thread_starts


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def test_a_container_that_runs_now_is_looked_at_at_once_and_a_removed_one_with_what_comes_with_it(
    harness: LoopHarness,
) -> None:
    woken: Counter[str] = Counter()
    workers = Workers(
        harness.engine,
        NullMeter(),
        threads=1,
        wake=lambda: woken.update(["wake"]),
        wake_now=lambda: woken.update(["hurry"]),
    )
    reconcile_pass = harness.pass_with(workers)

    def settled() -> Plan:
        wait_for("the groups came back", lambda: not workers.view()[0])
        return reconcile_pass.run()

    harness.apply("web")
    assert reconcile_pass.run().groups
    settled()
    wait_for("it is told", lambda: woken)
    assert woken == {"hurry": 1}
    harness.delete("web")
    assert settled().groups
    settled()
    workers.stop()
    assert woken == {"hurry": 1, "wake": woken["wake"]}
    assert woken["wake"] >= 1


def test_without_a_thread_nothing_is_in_flight(harness: LoopHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(harness.engine, NullMeter(), threads=1, wake=lambda: None)
    ref = ObjectRef("Sandbox", "default", "web", "uid-web")
    group = Group(ref, 1, False, (ReadTail(ref.uid, "web", "id", 0.0, "it ended"),))
    with monkeypatch.context() as patch:
        no_thread_starts(patch)
        with pytest.raises(RuntimeError):
            workers.start(group)
    assert workers.view()[0] == frozenset()
    workers.start(group)
    wait_for("it is carried out", lambda: ref.uid in workers.view()[1])
    workers.stop()


def test_renames_take_no_worker_and_few_at_once(harness: LoopHarness) -> None:
    begun, may_end = list[Action](), threading.Event()

    def before(action: Action) -> None:
        begun.append(action)
        assert not isinstance(action, RenameContainer) or may_end.wait(60)

    workers = Workers(harness.engine, NullMeter(), threads=1, wake=lambda: None, before=before)
    for number in range(5):
        ref = ObjectRef("Sandbox", "default", f"s{number}", f"uid-{number}")
        workers.start(Group(ref, 1, False, (RenameContainer(ref.uid, "new", "id", "old", "claimed"),)))
    wait_for("renames", lambda: len(begun) == 2)
    ref = ObjectRef("Sandbox", "default", "other", "uid-other")
    workers.start(Group(ref, 1, False, (ReadTail(ref.uid, "other", "id", 0.0, "it ended"),)))
    wait_for("the worker is done", lambda: ref.uid not in workers.view()[0])
    assert [action.verb for action in begun] == ["rename", "rename", ReadTail.verb]
    may_end.set()
    wait_for("all are renamed", lambda: not workers.view()[0])
    workers.stop()
    assert len(begun) == 6
