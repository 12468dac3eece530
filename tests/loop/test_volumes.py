"""Volumes through the loop: kept or taken away with the last sandbox that names them, and grown where they stand."""

import json
from collections.abc import Iterator

import pytest

from controller.plan.sandbox.disk_limit import limit_of
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness

KEY = ("default", "data")


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def apply(harness: LoopHarness, name: str, policy: str = "Delete", size: str = "8Mi", **spec: object) -> None:
    volume = {"name": "data", "mountPath": "/data", "size": size, "reclaimPolicy": policy}
    harness.apply(name, template={"volumes": [volume]}, **spec)
    harness.settle()


def quota(harness: LoopHarness, disk: str) -> None:
    spec = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"disk": disk}},
    }
    harness.services.apply.apply([Source("test", json.dumps(spec))])
    harness.settle()


def test_what_can_never_fit_is_refused(harness: LoopHarness) -> None:
    quota(harness, "32Mi")
    with pytest.raises(errors.Invalid, match="can never fit quota default/q: disk"):
        apply(harness, "a", size="64Mi")


def test_a_disk_limit_is_of_the_container_alone(harness: LoopHarness) -> None:
    apply(harness, "a", resources={"limits": {"disk": "4Mi"}})
    (record,) = harness.store.instances()
    assert record.reserves.disk_bytes == 12 << 20
    snapshot = harness.reconcile_pass.last
    assert snapshot is not None
    assert limit_of(snapshot.desired, record.uid) == 4 << 20
