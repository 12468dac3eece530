"""Counts that passes report, of a whole daemon with a meter that remembers."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.planning.action import CreateContainer
from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.container import Limits
from controller.service.objects.apply import Source
from controller.store.sql_store import SqlStore
from tests.loop.harness import TINY, LoopHarness
from tests.migrated import open_store

TEMPLATE = {"image": TINY, "command": ["sleep", "1000000"]}


class Told:
    """A Meter that keeps what it was told, by name and labels."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], float] = defaultdict(float)
        self.times: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self.gauges: dict[tuple[str, ...], float] = {}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        self.counts[name, *labels.values()] += amount

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        self.times[name, *labels.values()].append(seconds)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.gauges[name, *labels.values()] = value


class CountedHarness(LoopHarness):
    """A harness with a meter that remembers."""

    def __init__(self, store: SqlStore) -> None:
        self.told = Told()
        super().__init__(store, meter=self.told)

    def apply_document(self, document: dict[str, Any]) -> None:
        self.services.apply.apply([Source("test", json.dumps(document))])


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CountedHarness]:
    with open_store(tmp_path) as store:
        harness = CountedHarness(store)
        harness.run_pass()
        yield harness
        harness.close()


def convergence(harness: CountedHarness, operation: str) -> list[float]:
    return harness.told.times["paddock_convergence_duration_seconds", operation]


def test_create_update_and_delete_are_timed_once_each(harness: CountedHarness) -> None:
    harness.apply("box")
    harness.clock.advance(3)
    harness.settle()
    assert [round(number) for number in convergence(harness, "create")] == [3]
    harness.apply("box", resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    assert len(convergence(harness, "update")) == 1
    harness.apply("box", template={"env": [{"name": "A", "value": "b"}]}, resources={"limits": {"memory": "64Mi"}})
    harness.settle()
    assert len(convergence(harness, "update")) == 2
    harness.delete("box")
    harness.clock.advance(2)
    harness.settle()
    assert len(convergence(harness, "delete")) == 1
    assert 2 <= convergence(harness, "delete")[0] < 60
    assert len(convergence(harness, "create")) == 1


def test_a_repair_is_no_change(harness: CountedHarness) -> None:
    harness.apply("box")
    harness.settle()
    harness.engine.kill(harness.container_name("box"))
    harness.settle()
    assert (len(convergence(harness, "create")), convergence(harness, "update")) == (1, [])


def test_what_was_accepted_before_this_daemon_is_not_timed(harness: CountedHarness) -> None:
    harness.apply("box")
    harness.settle()
    harness.told.times.clear()
    harness.clock.advance(60)
    harness.daemon()
    harness.settle()
    assert convergence(harness, "create") == []


def test_one_that_waits_for_room_is_counted_once_and_shown_as_long_as_it_waits(harness: CountedHarness) -> None:
    harness.apply("first", resources={"limits": {"memory": "10Gi"}})
    harness.settle()
    harness.apply("second", resources={"limits": {"memory": "10Gi"}})
    harness.settle()
    harness.settle()
    waiting = ("paddock_quota_waiting_sandboxes", "host", "memory")
    assert harness.told.gauges[waiting] == 1
    assert harness.told.counts["paddock_quota_rejections_total", "host", "memory"] == 1
    harness.delete("second")
    harness.settle()
    assert harness.told.gauges[waiting] == 0


def test_a_pools_members_are_timed_and_their_retirement_has_a_reason(harness: CountedHarness) -> None:
    harness.apply_template("tiny", **TEMPLATE)
    pool = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "warm"},
        "spec": {"templateRef": {"name": "tiny"}, "warmReplicas": 2},
    }
    harness.apply_document(pool)
    harness.settle()
    assert len(harness.told.times["paddock_pool_startup_duration_seconds", "default", "warm"]) == 2
    harness.refer("box", "tiny")
    harness.settle()
    assert len(harness.told.times["paddock_pool_claim_duration_seconds", "default", "warm"]) == 1
    pool["spec"] = {"templateRef": {"name": "tiny"}, "warmReplicas": 0}
    harness.apply_document(pool)
    harness.settle()
    assert harness.told.counts["paddock_pool_members_retired_total", "scale_down", "default", "warm"] == 2


def test_a_member_that_can_not_be_started_is_counted_by_its_reason(harness: CountedHarness) -> None:
    harness.apply_template("tiny", **TEMPLATE)
    harness.engine.fail_next(CreateContainer, Transient("EngineUnreachable", "no"), Transient("StartFailed", "no"))
    harness.apply_document(
        {
            "apiVersion": "paddock/v1alpha1",
            "kind": "SandboxPool",
            "metadata": {"name": "warm"},
            "spec": {"templateRef": {"name": "tiny"}, "warmReplicas": 1},
        }
    )
    harness.settle()
    name = "paddock_pool_startup_failures_total"
    assert harness.told.counts[name, "default", "warm", "EngineUnreachable"] == 1
    harness.clock.advance(60)
    harness.settle()
    assert len(harness.told.times["paddock_pool_startup_duration_seconds", "default", "warm"]) == 1
    assert sum(count for labels, count in harness.told.counts.items() if labels[0] == name) == 2


def test_what_differs_is_shown_until_it_is_taken_back(harness: CountedHarness) -> None:
    harness.apply("one")
    harness.apply("two")
    harness.settle()
    first, two = (harness.get(name) for name in ("one", "two"))
    assert first is not None
    assert two is not None
    harness.engine.update_limits(harness.container_name("one"), Limits(700, 1 << 30, 999))
    harness.engine.update_limits(
        harness.container_name("two"), replace(harness.engine.container(harness.container_name("two")).limits, pids=998)
    )
    harness.engine.observe_now(full=True)

    def shown() -> dict[str, int]:
        harness.reconcile_pass.run()
        assert harness.reconcile_pass.last is not None
        return dict(harness.reconcile_pass.last.progress.drifted)

    assert shown() == {first.uid: 3, two.uid: 1}
    harness.settle()
    assert shown() == {}
