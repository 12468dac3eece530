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


class CountedHouse(LoopHarness):
    """A house with a meter that remembers."""

    def __init__(self, store: SqlStore) -> None:
        self.told = Told()
        super().__init__(store, meter=self.told)

    def apply_document(self, document: dict[str, Any]) -> None:
        self.services.apply.apply([Source("test", json.dumps(document))])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[CountedHouse]:
    store = SqlStore(f"sqlite:///{tmp_path / 'paddock.db'}")
    store.open()
    counted_house = CountedHouse(store)
    counted_house.run_pass()
    yield counted_house
    counted_house.close()
    store.close()


def convergence(house: CountedHouse, operation: str) -> list[float]:
    return house.told.times["paddock_convergence_duration_seconds", operation]


def test_create_update_and_delete_are_timed_once_each(house: CountedHouse) -> None:
    house.apply("box")
    house.clock.advance(3)
    house.settle()
    assert [round(number) for number in convergence(house, "create")] == [3]
    house.apply("box", resources={"limits": {"memory": "64Mi"}})
    house.settle()
    assert len(convergence(house, "update")) == 1
    house.apply("box", template={"env": [{"name": "A", "value": "b"}]}, resources={"limits": {"memory": "64Mi"}})
    house.settle()
    assert len(convergence(house, "update")) == 2
    house.delete("box")
    house.clock.advance(2)
    house.settle()
    assert len(convergence(house, "delete")) == 1
    assert 2 <= convergence(house, "delete")[0] < 60
    assert len(convergence(house, "create")) == 1


def test_a_repair_is_no_change(house: CountedHouse) -> None:
    house.apply("box")
    house.settle()
    house.engine.kill(house.container_name("box"))
    house.settle()
    assert (len(convergence(house, "create")), convergence(house, "update")) == (1, [])


def test_what_was_accepted_before_this_daemon_is_not_timed(house: CountedHouse) -> None:
    house.apply("box")
    house.settle()
    house.told.times.clear()
    house.clock.advance(60)
    house.daemon()
    house.settle()
    assert convergence(house, "create") == []


def test_one_that_waits_for_room_is_counted_once_and_shown_as_long_as_it_waits(house: CountedHouse) -> None:
    house.apply("first", resources={"limits": {"memory": "10Gi"}})
    house.settle()
    house.apply("second", resources={"limits": {"memory": "10Gi"}})
    house.settle()
    house.settle()
    waiting = ("paddock_quota_waiting_sandboxes", "host", "memory")
    assert house.told.gauges[waiting] == 1
    assert house.told.counts["paddock_quota_rejections_total", "host", "memory"] == 1
    house.delete("second")
    house.settle()
    assert house.told.gauges[waiting] == 0


def test_a_pools_members_are_timed_and_their_retirement_has_a_reason(house: CountedHouse) -> None:
    house.apply_template("tiny", **TEMPLATE)
    pool = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "warm"},
        "spec": {"templateRef": {"name": "tiny"}, "warmReplicas": 2},
    }
    house.apply_document(pool)
    house.settle()
    assert len(house.told.times["paddock_pool_startup_duration_seconds", "default", "warm"]) == 2
    house.refer("box", "tiny")
    house.settle()
    assert len(house.told.times["paddock_pool_claim_duration_seconds", "default", "warm"]) == 1
    pool["spec"] = {"templateRef": {"name": "tiny"}, "warmReplicas": 0}
    house.apply_document(pool)
    house.settle()
    assert house.told.counts["paddock_pool_members_retired_total", "scale_down", "default", "warm"] == 2


def test_a_member_that_can_not_be_started_is_counted_by_its_reason(house: CountedHouse) -> None:
    house.apply_template("tiny", **TEMPLATE)
    house.engine.fail_next(CreateContainer, Transient("EngineUnreachable", "no"), Transient("StartFailed", "no"))
    house.apply_document(
        {
            "apiVersion": "paddock/v1alpha1",
            "kind": "SandboxPool",
            "metadata": {"name": "warm"},
            "spec": {"templateRef": {"name": "tiny"}, "warmReplicas": 1},
        }
    )
    house.settle()
    name = "paddock_pool_startup_failures_total"
    assert house.told.counts[name, "default", "warm", "EngineUnreachable"] == 1
    house.clock.advance(60)
    house.settle()
    assert len(house.told.times["paddock_pool_startup_duration_seconds", "default", "warm"]) == 1
    assert sum(count for labels, count in house.told.counts.items() if labels[0] == name) == 2


def test_what_differs_is_shown_until_it_is_taken_back(house: CountedHouse) -> None:
    house.apply("one")
    house.apply("two")
    house.settle()
    harness, two = (house.get(name) for name in ("one", "two"))
    assert harness is not None
    assert two is not None
    house.engine.update_limits(house.container_name("one"), Limits(700, 1 << 30, 999))
    house.engine.update_limits(
        house.container_name("two"), replace(house.engine.box(house.container_name("two")).limits, pids=998)
    )
    house.engine.observe_now(full=True)

    def shown() -> dict[str, int]:
        house.reconcile_pass.run()
        assert house.reconcile_pass.last is not None
        return dict(house.reconcile_pass.last.drifted)

    assert shown() == {harness.uid: 3, two.uid: 1}
    house.settle()
    assert shown() == {}
