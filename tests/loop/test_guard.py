"""The guard lost while sandboxes run: what only it confines is frozen, stopped or told, and goes on when it is back."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from controller.kinds.observed.canary import CanaryResult
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import PauseContainer
from controller.policy.images import ImageRules
from controller.policy.levels.levels import GuardLost, Policy
from controller.policy.network.egress import IMAGE
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness
from tests.small_sandboxes import apply_small

GONE = "the table is gone"
Make = Callable[[GuardLost], LoopHarness]


@pytest.fixture
def make(backend: Backend) -> Iterator[Make]:
    harnesses: list[LoopHarness] = []

    def make_harness(guard_lost: GuardLost) -> LoopHarness:
        harnesses.append(LoopHarness(backend.store(), policy=replace(Policy(), guard_lost=guard_lost)))
        harnesses[-1].engine.add_image(IMAGE)
        return harnesses[-1]

    yield make_harness
    for harness in harnesses:
        harness.close()


def guard(harness: LoopHarness, words: str) -> None:
    harness.engine.unguarded = words
    harness.engine.observe_now()
    harness.settle()


def running(harness: LoopHarness, name: str, level: str = "production", **spec: object) -> None:
    apply_small(harness, name, level, **spec)
    harness.settle()
    assert harness.condition(name, "Ready") == "True Running"


def state(harness: LoopHarness, name: str) -> State:
    return harness.engine.container(harness.container_name(name)).state


def told(harness: LoopHarness, name: str) -> list[str]:
    return [event.reason for event in harness.store.events(name=name) if event.reason in ("GuardLost", "GuardBack")]


def test_what_the_canary_found_broken_counts_as_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make("pause")
    running(harness, "open")
    canary_results = [CanaryResult("Broken", "this host can be reached")]

    class Watch:
        def see(self, _observed: object) -> CanaryResult:
            return canary_results[0]

        def request_test(self, _deferrals: object) -> None: ...

    monkeypatch.setattr(harness.reconcile_pass, "_canary", Watch())
    harness.settle()
    assert state(harness, "open") is State.PAUSED
    canary_results[0] = CanaryResult("Holds")
    harness.settle()
    assert state(harness, "open") is State.RUNNING


def test_a_spec_that_is_refused_meanwhile_goes_on_as_it_was(make: Make) -> None:
    harness = make("pause")
    running(harness, "open")
    harness.policy = replace(harness.policy, images=ImageRules(("allowed/*",)))
    harness.daemon()
    guard(harness, GONE)
    assert harness.condition("open", "Accepted") == "False Refused"
    assert state(harness, "open") is State.PAUSED
    guard(harness, "")
    assert state(harness, "open") is State.RUNNING
    assert told(harness, "open") == ["GuardLost", "GuardBack"]


def test_a_pool_freezes_what_is_warm_and_hands_none_of_it_out(make: Make) -> None:
    harness = make("pause")
    harness.apply_template("base", image="paddock/test-tiny:1", command=["sleep", "1"], securityLevel="production")
    pool = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "p"},
        "spec": {"templateRef": {"name": "base"}, "warmReplicas": 2},
    }
    harness.services.apply.apply([Source("test", json.dumps(pool))])
    harness.settle()
    guard(harness, GONE)
    states = {harness.engine.container(name).state for names in harness.ours().values() for name in names}
    assert states == {State.PAUSED}
    paused = [entry for entry in harness.engine.calls if isinstance(entry, PauseContainer)]
    assert len(paused) == 2
    harness.refer("claimed", "base")
    harness.settle()
    assert harness.condition("claimed", "Ready") == "False NetworkUnguarded"
    guard(harness, "")
    assert harness.condition("claimed", "Ready") == "True Running"
