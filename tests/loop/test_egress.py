"""Sealed networks through the loop: up before the sandbox, kept while it runs, gone with it; safe from crashes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE, UPLINK
from controller.service import errors
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness
from tests.loop.networked import repair_each_crash
from tests.small_sandboxes import apply_small

POLICY = Policy()


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store(), policy=POLICY)
    harness.engine.add_image(IMAGE)
    yield harness
    harness.close()


def apply(harness: LoopHarness, name: str = "web", hosts: list[str] | None = None, **spec: object) -> None:
    network = {} if hosts is None else {"network": {"allowedHosts": hosts}}
    apply_small(harness, name, "development", **network, **spec)


def test_the_listeners_refuse_a_network_that_is_not_guarded(harness: LoopHarness) -> None:
    harness.policy = replace(POLICY, unguarded="nft is not installed")
    with pytest.raises(errors.Invalid, match="can't be enforced here now: nft is not installed"):
        apply(harness)


def test_a_level_without_a_network_takes_no_hosts(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match="has no network at all"):
        harness.apply("web", network={"allowedHosts": ["git.example.org"]})


def test_a_crash_at_any_step_is_repaired_by_the_next_daemon(backend: Backend, harness: LoopHarness) -> None:
    deeds = (
        *(lambda: apply(harness, hosts=["git.example.org"]), harness.settle),
        *(lambda: apply(harness, hosts=[]), harness.settle),
        *(lambda: harness.delete("web"), harness.settle),
    )
    assert repair_each_crash(backend, harness, deeds, lambda _: "True Sealed", shared_networks={UPLINK}) > 20
