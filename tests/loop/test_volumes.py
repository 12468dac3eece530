"""Volumes through the loop: kept or taken away with the last sandbox that names them, and grown where they stand."""

import json
from collections.abc import Iterator

import pytest

from controller.plan.sandbox.disk_limit import limit_of
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness

KEY = ("default", "data")


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def apply(house: LoopHarness, name: str, policy: str = "Delete", size: str = "8Mi", **spec: object) -> None:
    volume = {"name": "data", "mountPath": "/data", "size": size, "reclaimPolicy": policy}
    house.apply(name, template={"volumes": [volume]}, **spec)
    house.settle()


def quota(house: LoopHarness, disk: str) -> None:
    spec = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"disk": disk}},
    }
    house.services.apply.apply([Source("test", json.dumps(spec))])
    house.settle()


def test_what_can_never_fit_is_refused(house: LoopHarness) -> None:
    quota(house, "32Mi")
    with pytest.raises(errors.Invalid, match="can never fit quota default/q: disk"):
        apply(house, "a", size="64Mi")


def test_a_disk_limit_is_of_the_container_alone(house: LoopHarness) -> None:
    apply(house, "a", resources={"limits": {"disk": "4Mi"}})
    (record,) = house.store.instances()
    assert record.reserves.disk_bytes == 12 << 20
    snapshot = house.reconcile_pass.last
    assert snapshot is not None
    assert limit_of(snapshot, record.uid) == 4 << 20
