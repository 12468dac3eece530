"""Guarded bridges through the loop: each start is in the audit log before it, and a crash leaves nothing behind."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.policy.levels.levels import Policy
from controller.ports import StoreError
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness
from tests.loop.networked import repair_each_crash
from tests.small_sandboxes import apply_small


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store(), policy=replace(Policy(), local_network=True))
    yield harness
    harness.close()


def apply(harness: LoopHarness, name: str = "web", level: str = "production", *, local: bool = False) -> None:
    network = {"network": {"localNetwork": "Allowed"}} if local else {}
    apply_small(harness, name, level, **network)


def test_each_start_is_in_the_audit_log_before_it_happens(harness: LoopHarness) -> None:
    apply(harness)
    harness.settle()
    harness.clock.advance(60)
    harness.engine.kill(harness.container_name("web"))
    harness.settle()
    apply(harness, "quiet", level="full-isolation")
    harness.settle()
    observed = [
        (entry.actor, entry.verb, entry.name, entry.detail["generation"]) for entry in harness.store.audit.entries()
    ]
    assert [entry for entry in observed if entry[1] == "start"] == [("paddock", "start", "web", 1)] * 2
    assert harness.store.audit.verify().problem == ""


def test_without_a_log_that_takes_the_entry_nothing_is_started(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(harness)

    def full(*_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr("controller.store.transaction.append", full)
    with pytest.raises(StoreError):
        harness.run_pass()
    assert harness.engine.calls == []


def test_a_crash_at_any_step_is_repaired_by_the_next_daemon(backend: Backend, harness: LoopHarness) -> None:
    deeds = (
        *(lambda: apply(harness), harness.settle),
        *(lambda: apply(harness, local=True), harness.settle),
        *(lambda: harness.delete("web"), harness.settle),
    )
    assert repair_each_crash(backend, harness, deeds, lambda number: "True Public" if number < 2 else "True Local") > 15
