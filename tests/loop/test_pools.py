"""Warm pools through services and the loop: claimed, one sandbox each, and never twice."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.planning.action import CreateContainer
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, FusedStore, LoopHarness, killed_at_each_step


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def apply_pool(harness: LoopHarness, name: str = "warm", template: str = "t", **spec: Any) -> None:
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, **spec},
    }
    harness.services.apply.apply([Source("test", json.dumps(document))])


def filled(harness: LoopHarness, replicas: int = 2, **spec: Any) -> LoopHarness:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
    apply_pool(harness, warmReplicas=replicas, **spec)
    harness.settle()
    return harness


def pool(harness: LoopHarness, name: str = "warm") -> StoredObject:
    sandbox_pool = harness.store.get("SandboxPool", "default", name)
    assert sandbox_pool is not None
    return sandbox_pool


def counts(harness: LoopHarness) -> tuple[int, int, int]:
    status = pool(harness).status
    return status["replicas"], status["readyReplicas"], status["claimedReplicas"]


def containers(harness: LoopHarness) -> list[str]:
    """Names of all our containers."""
    return sorted(name for names in harness.ours().values() for name in names)


def launch(harness: LoopHarness, name: str) -> str:
    sandbox = harness.get(name)
    assert sandbox is not None
    return f"{sandbox.status['launchType']}: {sandbox.status['launchReason']}"


def test_a_new_sandbox_takes_a_warm_sandbox_as_it_runs(harness: LoopHarness) -> None:
    filled(harness)
    before = {entry.id for container in harness.engine.observe().containers.values() for entry in container}
    harness.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    first = harness.reconcile_pass.run()
    assert not [action for group in first.groups for action in group.actions if isinstance(action, CreateContainer)]
    harness.settle()
    sandbox = harness.get("a")
    assert sandbox is not None
    assert sandbox.status["instanceRef"]["containerID"] in before
    assert sandbox.status["instanceRef"]["name"] == harness.container_name("a")
    assert sandbox.status["resources"]["limits"]["memory"] == "256Mi"
    assert launch(harness, "a") == "Warm: "
    assert harness.condition("a", "Ready") == "True Running"
    assert counts(harness) == (2, 2, 1)
    assert len(containers(harness)) == 3


def test_a_claimed_sandbox_is_not_ready_before_its_limits_hold(harness: LoopHarness) -> None:
    filled(harness)
    harness.refer("a", "t", resources={"limits": {"memory": "256Mi"}})
    harness.reconcile_pass.run()
    assert harness.condition("a", "Ready") == "False Claiming"
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"


def test_no_two_sandboxes_get_one_sandbox(harness: LoopHarness) -> None:
    filled(harness)
    for name in ("a", "b", "c"):
        harness.refer(name, "t")
    harness.settle()
    ids = [harness.get(name).status["instanceRef"]["containerID"] for name in ("a", "b", "c")]  # type: ignore[union-attr]
    assert len(set(ids)) == 3
    assert [launch(harness, name).split(":")[0] for name in ("a", "b", "c")] == ["Warm", "Warm", "Cold"]
    assert "no member ready" in launch(harness, "c")
    assert counts(harness) == (2, 2, 2)


def test_a_used_sandbox_is_destroyed_and_never_handed_out_again(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.refer("a", "t")
    harness.settle()
    container_id = harness.get("a").status["instanceRef"]["containerID"]  # type: ignore[union-attr]
    harness.delete("a")
    harness.settle()
    harness.refer("b", "t")
    harness.settle()
    ids = {entry.id for container in harness.engine.observe().containers.values() for entry in container}
    assert container_id not in ids
    assert launch(harness, "b") == "Warm: "


def test_an_outdated_member_is_not_claimed(harness: LoopHarness) -> None:
    filled(harness, 1)
    harness.apply_template("t", image=TINY, command=["sleep", "2000000"])
    harness.refer("a", "t")
    harness.settle()
    assert launch(harness, "a").startswith("Cold: ")


def test_a_deleted_pool_takes_its_members_and_leaves_claimed_sandboxes(harness: LoopHarness) -> None:
    filled(harness, 2)
    harness.refer("a", "t")
    harness.settle()
    harness.delete("warm", "sandboxpool")
    harness.settle()
    assert harness.store.get("SandboxPool", "default", "warm") is None
    assert containers(harness) == [harness.container_name("a")]
    assert harness.condition("a", "Ready") == "True Running"


def test_the_maximum_counts_claimed_sandboxes(harness: LoopHarness) -> None:
    filled(harness, 2, maxReplicas=3)
    harness.refer("a", "t")
    harness.refer("b", "t")
    harness.settle()
    assert counts(harness) == (1, 1, 2)
    harness.delete("a")
    harness.settle()
    assert counts(harness) == (2, 2, 1)


def test_require_waits_for_a_place_and_takes_it(harness: LoopHarness) -> None:
    filled(harness, 1, maxReplicas=1)
    harness.refer("a", "t", poolPolicy="Require")
    harness.refer("b", "t", poolPolicy="Require")
    harness.settle()
    assert launch(harness, "a") == "Warm: "
    assert harness.condition("b", "Scheduled") == "False PoolExhausted"
    assert "maxReplicas of 1" in next(
        condition["message"]
        for condition in harness.get("b").status["conditions"]  # type: ignore[union-attr]
        if condition["type"] == "Scheduled"
    )
    harness.delete("a")
    harness.settle()
    assert harness.condition("b", "Ready") == "True Running"
    assert counts(harness) == (0, 0, 1)


def test_a_daemon_that_dies_at_any_step_of_a_claim_leaves_nothing_behind(
    backend: Backend, harness: LoopHarness
) -> None:
    filled(harness, 2)
    harness.services = harness.services_over(FusedStore(harness.store, harness.fuse))
    large = {"limits": {"memory": "256Mi"}}
    deeds = (harness.settle, lambda: harness.refer("a", "t", resources=large), harness.settle)
    moments = 0
    for _ in killed_at_each_step(harness, backend.path(), *deeds):
        moments += 1
        harness.settle()
        if harness.get("a") is None:  # it died before its transaction was committed: as if nothing had been said
            harness.refer("a", "t", resources=large)
        harness.settle()
        assert launch(harness, "a") == "Warm: "
        assert harness.condition("a", "Ready") == "True Running"
        assert counts(harness) == (2, 2, 1)
        assert len(containers(harness)) == len(list(harness.store.instances())) == 3, f"moment {moments}"
    assert moments > 7


def quota(harness: LoopHarness, **hard: Any) -> None:
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "q"},
        "spec": {"hard": hard},
    }
    harness.services.apply.apply([Source("test", json.dumps(document))])


def test_no_claim_beyond_the_number_of_sandboxes(harness: LoopHarness) -> None:
    quota(harness, sandboxes=1)
    filled(harness, 2)
    harness.refer("a", "t")
    harness.refer("b", "t")
    harness.settle()
    assert launch(harness, "a") == "Warm: "
    assert harness.condition("b", "Scheduled") == "False QuotaExceeded"
