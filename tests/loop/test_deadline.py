"""Limits of a sandbox's life: activeDeadlineSeconds, ttlSecondsAfterFinished; real store, fake engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness, killed_at_each_step

DEADLINE: dict[str, Any] = {"activeDeadlineSeconds": 100, "shutdownGracePeriodSeconds": 5, "keepRunning": True}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def go_on(harness: LoopHarness, seconds: float) -> None:
    """So much time goes by, with a pass whenever one is due."""
    end = harness.clock.now() + seconds
    harness.settle(seconds=seconds)
    harness.clock.advance(max(0.0, end - harness.clock.now()))
    harness.settle(seconds=0)


def test_a_short_life_ends_after_any_crash(backend: Backend, harness: LoopHarness) -> None:
    deeds = (
        lambda: harness.apply("web", lifecycle={**DEADLINE, "ttlSecondsAfterFinished": 50}),
        lambda: go_on(harness, 170),
    )
    moments = 0
    for _ in killed_at_each_step(harness, backend.path(), *deeds):
        moments += 1
        go_on(harness, 170)
        remains = harness.names(), harness.ours(), list(harness.store.instances())
        assert remains == ([], {}, []), f"moment {moments}"
    assert moments > 8
