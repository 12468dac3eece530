"""The guard lost while sandboxes run: what only it confines is frozen, stopped or told, and goes on when it is back."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from controller.kinds.observed.canary import CanaryResult
from controller.kinds.observed.observed import State
from controller.kinds.planning.action import PauseContainer, SignalContainer, UnpauseContainer
from controller.kinds.planning.outcome import Transient
from controller.policy.images import ImageRules
from controller.policy.levels.levels import GuardLost, Policy
from controller.policy.network.egress import IMAGE
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness

GONE = "the table is gone"
Make = Callable[[GuardLost], LoopHarness]


@pytest.fixture
def make(world: World) -> Iterator[Make]:
    made: list[LoopHarness] = []

    def house(guard_lost: GuardLost) -> LoopHarness:
        made.append(LoopHarness(world.store(), policy=replace(Policy(), guard_lost=guard_lost)))
        made[-1].engine.add_image(IMAGE)
        return made[-1]

    yield house
    for each in made:
        each.close()


def running(house: LoopHarness, name: str, level: str = "production", **spec: object) -> None:
    small = {"limits": {"cpu": "100m", "memory": "64Mi", "pids": 16}}
    house.apply(name, template={"securityLevel": level}, **{"resources": small, **spec})
    house.settle()
    assert house.condition(name, "Ready") == "True Running"


def guard(house: LoopHarness, words: str) -> None:
    house.engine.unguarded = words
    house.engine.observe_now()
    house.settle()


def state(house: LoopHarness, name: str) -> State:
    return house.engine.box(house.container_name(name)).state


def told(house: LoopHarness, name: str) -> list[str]:
    return [each.reason for each in house.store.events(name=name) if each.reason in ("GuardLost", "GuardBack")]


def secured(house: LoopHarness, name: str) -> str:
    found = house.get(name)
    assert found is not None
    return next(each["message"] for each in found.status["conditions"] if each["type"] == "Secured")


def test_what_only_the_guard_confines_is_frozen_until_it_is_back(make: Make) -> None:
    house = make("pause")
    running(house, "open")
    for level in ("full-isolation", "development", "build"):
        running(house, level, level)
    before = house.engine.box(house.container_name("open")).id
    guard(house, GONE)
    assert state(house, "open") is State.PAUSED
    assert house.condition("open", "Ready") == "False NetworkUnguarded"
    assert house.condition("open", "NetworkReady") == "False NetworkUnguarded"
    assert house.condition("open", "Secured") == "False NetworkUnguarded"
    assert GONE in secured(house, "open")
    for level in ("full-isolation", "development", "build"):
        assert state(house, level) is State.RUNNING
        assert house.condition(level, "Ready") == "True Running"
        assert told(house, level) == []
    guard(house, "")
    assert state(house, "open") is State.RUNNING
    assert house.engine.box(house.container_name("open")).id == before
    assert house.condition("open", "Ready") == "True Running"
    assert house.condition("open", "Secured") == "True Attested"
    assert told(house, "open") == ["GuardLost", "GuardBack"]
    found = house.get("open")
    assert found is not None
    assert found.status["restartCount"] == 0


def test_it_may_be_stopped_instead_at_once_and_starts_again(make: Make) -> None:
    house = make("stop")
    running(house, "open", restartPolicy="Never")
    guard(house, GONE)
    assert [each.signal for each in house.engine.calls if isinstance(each, SignalContainer)] == ["KILL"]
    assert state(house, "open") is State.EXITED
    assert house.condition("open", "Ready") == "False NetworkUnguarded"
    assert house.condition("open", "Finished") == "False NotFinished"
    guard(house, "")
    assert house.condition("open", "Ready") == "True Running"
    assert told(house, "open") == ["GuardLost"]


def test_it_may_be_told_alone(make: Make) -> None:
    house = make("report")
    running(house, "open")
    calls = len(house.engine.calls)
    guard(house, GONE)
    guard(house, GONE)
    assert len(house.engine.calls) == calls
    assert house.condition("open", "Ready") == "False NetworkUnguarded"
    assert house.condition("open", "Secured") == "False NetworkUnguarded"
    guard(house, "")
    assert house.condition("open", "Ready") == "True Running"
    assert told(house, "open") == ["GuardLost", "GuardBack"]


def test_what_can_not_be_frozen_is_stopped(make: Make) -> None:
    house = make("pause")
    running(house, "open")
    house.engine.fail_next(PauseContainer, Transient("EngineError", "no freezer"))
    guard(house, GONE)
    assert state(house, "open") is State.EXITED
    guard(house, "")
    assert house.condition("open", "Ready") == "True Running"


def test_a_guard_that_can_not_be_read_is_not_lost(make: Make) -> None:
    house = make("pause")
    running(house, "open")
    house.engine.guard_unread = True
    guard(house, "nft failed: timed out")
    assert state(house, "open") is State.RUNNING
    assert house.condition("open", "Ready") == "True Running"
    assert house.condition("open", "NetworkReady") == "Unknown NetworkUnguarded"
    house.engine.guard_unread = False
    guard(house, GONE)
    assert state(house, "open") is State.PAUSED
    house.engine.guard_unread = True
    guard(house, "nft failed: timed out")
    assert state(house, "open") is State.PAUSED


def test_what_the_canary_found_broken_counts_as_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    house = make("pause")
    running(house, "open")
    found = [CanaryResult("Broken", "this host can be reached")]

    class Watch:
        def see(self, _observed: object) -> CanaryResult:
            return found[0]

        def request_test(self, _deferrals: object) -> None: ...

    monkeypatch.setattr(house.turn, "_canary", Watch())
    house.settle()
    assert state(house, "open") is State.PAUSED
    found[0] = CanaryResult("Holds")
    house.settle()
    assert state(house, "open") is State.RUNNING


def test_what_is_frozen_can_be_suspended_and_deleted_without_time_to_run(make: Make) -> None:
    house = make("pause")
    running(house, "one")
    running(house, "other")
    guard(house, GONE)
    house.apply("one", template={"securityLevel": "production"}, runState="Suspended")
    house.delete("other")
    house.settle()
    assert house.get("other") is None
    assert state(house, "one") is State.EXITED
    assert house.condition("one", "Suspended") == "True Suspended"
    assert {each.signal for each in house.engine.calls if isinstance(each, SignalContainer)} == {"KILL"}


def test_what_was_to_be_paused_stays_so_when_the_guard_is_back(make: Make) -> None:
    house = make("pause")
    running(house, "open")
    guard(house, GONE)
    house.apply("open", template={"securityLevel": "production"}, runState="Paused")
    guard(house, "")
    assert state(house, "open") is State.PAUSED
    assert house.condition("open", "Ready") == "False Paused"
    assert not [each for each in house.engine.calls if isinstance(each, UnpauseContainer)]


def test_another_spec_is_not_run_before_the_guard_is_back(make: Make) -> None:
    house = make("pause")
    running(house, "open")
    guard(house, GONE)
    house.apply("open", template={"securityLevel": "production", "env": [{"name": "A", "value": "1"}]})
    house.settle()
    assert state(house, "open") is State.PAUSED
    guard(house, "")
    assert house.condition("open", "Ready") == "True Running"
    assert ("A", "1") in house.engine.box(house.container_name("open")).config.env


def test_a_spec_that_is_refused_meanwhile_goes_on_as_it_was(make: Make) -> None:
    house = make("pause")
    running(house, "open")
    house.policy = replace(house.policy, images=ImageRules(("allowed/*",)))
    house.daemon()
    guard(house, GONE)
    assert house.condition("open", "Accepted") == "False Refused"
    assert state(house, "open") is State.PAUSED
    guard(house, "")
    assert state(house, "open") is State.RUNNING
    assert told(house, "open") == ["GuardLost", "GuardBack"]


def test_the_next_daemon_knows_what_was_frozen_and_why(make: Make) -> None:
    house = make("pause")
    running(house, "open")
    guard(house, GONE)
    house.daemon()
    guard(house, "")
    assert state(house, "open") is State.RUNNING
    assert told(house, "open") == ["GuardLost", "GuardBack"]


def test_a_pool_freezes_what_is_warm_and_hands_none_of_it_out(make: Make) -> None:
    house = make("pause")
    house.apply_template("base", image="paddock/test-tiny:1", command=["sleep", "1"], securityLevel="production")
    pool = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": "p"},
        "spec": {"templateRef": {"name": "base"}, "warmReplicas": 2},
    }
    house.services.apply.apply([Source("test", json.dumps(pool))])
    house.settle()
    guard(house, GONE)
    states = {house.engine.box(name).state for names in house.ours().values() for name in names}
    assert states == {State.PAUSED}
    paused = [each for each in house.engine.calls if isinstance(each, PauseContainer)]
    assert len(paused) == 2
    house.refer("claimed", "base")
    house.settle()
    assert house.condition("claimed", "Ready") == "False NetworkUnguarded"
    guard(house, "")
    assert house.condition("claimed", "Ready") == "True Running"
