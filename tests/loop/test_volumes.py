"""Volumes through the loop: kept or taken away with the last sandbox that names them, and grown where they stand."""

import json
from collections.abc import Iterator

import pytest

from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.mount import BindMounts, RemoveVolumes
from controller.plan.sandbox.disk_limit import limit_of
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness

KEY = ("default", "data")


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store())
    yield made
    made.close()


def apply(house: LoopHarness, name: str, policy: str = "Delete", size: str = "8Mi", **spec: object) -> None:
    volume = {"name": "data", "mountPath": "/data", "size": size, "reclaimPolicy": policy}
    house.apply(name, template={"volumes": [volume]}, **spec)
    house.settle()


def gone(house: LoopHarness, name: str) -> None:
    house.delete(name)
    house.settle()
    assert house.get(name) is None


def removals(house: LoopHarness) -> list[RemoveVolumes]:
    return [each for each in house.engine.calls if isinstance(each, RemoveVolumes)]


def test_one_that_is_to_go_goes_with_the_last_that_names_it_and_after_its_container(house: LoopHarness) -> None:
    apply(house, "a")
    apply(house, "b")
    gone(house, "a")
    assert house.engine.volumes == {KEY: 8 << 20}
    assert removals(house) == []
    gone(house, "b")
    assert house.engine.volumes == {}
    (removed,) = removals(house)
    assert (removed.namespace, removed.volumes) == ("default", ("data",))
    assert str(house.engine.calls[house.engine.calls.index(removed) - 1]).startswith("remove pdk-b")


def test_one_that_is_to_stay_stays(house: LoopHarness) -> None:
    apply(house, "a", "Retain")
    gone(house, "a")
    assert house.engine.volumes == {KEY: 8 << 20}


def test_one_that_a_stopped_sandbox_names_stays_for_it(house: LoopHarness) -> None:
    apply(house, "kept", "Retain", runState="Suspended")
    apply(house, "a")
    gone(house, "a")
    assert house.engine.volumes == {KEY: 8 << 20}


def test_of_two_that_go_at_a_time_neither_keeps_it(house: LoopHarness) -> None:
    apply(house, "a")
    apply(house, "b")
    house.delete("a")
    house.delete("b")
    house.settle()
    assert house.engine.volumes == {}


def test_a_removal_that_fails_holds_up_the_end_and_is_tried_again(house: LoopHarness) -> None:
    apply(house, "a")
    house.engine.fail_next(RemoveVolumes, Transient("VolumeStays", "the disk is away"))
    house.delete("a")
    house.run_pass()
    house.settle()
    assert house.engine.volumes == {}
    assert house.get("a") is None
    assert len(removals(house)) == 2


def test_a_larger_one_is_grown_while_the_sandbox_runs_and_nothing_is_made_anew(house: LoopHarness) -> None:
    apply(house, "a")
    before = house.engine.box(house.container_name("a"))
    apply(house, "a", size="16Mi")
    assert house.engine.volumes == {KEY: 16 << 20}
    now = house.engine.box(house.container_name("a"))
    assert (now.id, now.started_at) == (before.id, before.started_at)
    assert house.condition("a", "Ready") == "True Running"
    grown = [each for each in house.engine.calls if isinstance(each, BindMounts)][-1]
    assert grown.container_id == before.id


def test_a_smaller_one_is_refused_in_words_and_the_sandbox_runs_on(house: LoopHarness) -> None:
    apply(house, "a")
    before = house.engine.box(house.container_name("a")).id
    volume = {"name": "data", "mountPath": "/data", "size": "4Mi", "reclaimPolicy": "Delete"}
    house.apply("a", template={"volumes": [volume]})
    for _ in range(4):
        house.run_pass()
    assert house.condition("a", "Ready") == "True Running"
    assert house.condition("a", "Degraded") == "True MountRefused"
    assert house.engine.box(house.container_name("a")).id == before
    assert house.engine.volumes == {KEY: 8 << 20}


def quota(house: LoopHarness, disk: str) -> None:
    spec = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"disk": disk}},
    }
    house.services.apply.apply([Source("test", json.dumps(spec))])
    house.settle()


def used(house: LoopHarness) -> str:
    found = house.store.get("Quota", "default", "q")
    assert found is not None
    return str(found.status["used"]["disk"])


def test_its_size_is_counted_as_disk_from_admission_until_the_sandbox_is_gone(house: LoopHarness) -> None:
    quota(house, "32Mi")
    apply(house, "a", resources={"limits": {"disk": "4Mi"}})
    assert used(house) == "12Mi"
    apply(house, "a", resources={"limits": {"disk": "4Mi"}}, runState="Suspended")
    assert used(house) == "12Mi"
    apply(house, "b", size="24Mi")
    assert house.condition("b", "Scheduled") == "False QuotaExceeded"
    assert house.engine.volumes == {KEY: 8 << 20}
    gone(house, "a")
    house.settle()
    assert house.condition("b", "Ready") == "True Running"
    assert used(house) == "24Mi"


def test_one_that_has_no_room_to_grow_stays_as_it_is_and_its_sandbox_runs_on(house: LoopHarness) -> None:
    quota(house, "32Mi")
    apply(house, "a")
    house.apply("other", resources={"limits": {"disk": "20Mi"}})
    house.settle()
    apply(house, "a", size="16Mi")
    assert house.engine.volumes == {KEY: 8 << 20}
    assert house.condition("a", "Ready") == "True Running"
    assert house.condition("a", "Scheduled") == "True Assigned"
    gone(house, "other")
    house.settle()
    assert house.engine.volumes == {KEY: 16 << 20}
    assert used(house) == "16Mi"


def test_what_can_never_fit_is_refused(house: LoopHarness) -> None:
    quota(house, "32Mi")
    with pytest.raises(errors.Invalid, match="can never fit quota default/q: disk"):
        apply(house, "a", size="64Mi")


def test_a_disk_limit_is_of_the_container_alone(house: LoopHarness) -> None:
    apply(house, "a", resources={"limits": {"disk": "4Mi"}})
    (record,) = house.store.instances()
    assert record.reserves.disk_bytes == 12 << 20
    snapshot = house.turn.last
    assert snapshot is not None
    assert limit_of(snapshot, record.uid) == 4 << 20
