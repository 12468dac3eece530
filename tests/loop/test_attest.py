"""Attestation in the loop: what is not secured is killed, told, and stays down until somebody changes something."""

from collections.abc import Iterator

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.registry import discover
from controller.policy.levels.levels import Policy
from controller.service.errors import NotFound, ServiceUnavailable
from controller.service.sandbox.attest import Attested
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    made = LoopHarness(world.store())
    yield made
    made.close()


def attest(house: LoopHarness, name: str = "web") -> Attested:
    kind = discover().by_word("sandbox")
    assert kind is not None
    return house.services.attest.attest(kind, "default", name)


def state(house: LoopHarness) -> State:
    return house.engine.box(house.container_name("web")).state


def test_a_sandbox_is_secured_before_it_is_ready(house: LoopHarness) -> None:
    house.apply("web")
    while house.condition("web", "Ready") != "True Running":
        house.run_pass()
    assert house.condition("web", "Secured") == "True Attested"


def test_one_that_is_not_secured_is_never_ready_and_stays_down(house: LoopHarness) -> None:
    house.engine.hostile = {"seccomp": 0}
    house.apply("web")
    house.settle()
    assert state(house) is State.EXITED
    assert house.condition("web", "Ready") == "False NotSecured"
    assert house.condition("web", "Secured") == "False NotSecured"
    starts = sum(str(each).startswith("start ") for each in house.engine.calls)
    house.clock.advance(86400)
    house.settle()
    house.daemon()
    house.settle()
    assert sum(str(each).startswith("start ") for each in house.engine.calls) == starts == 1
    found = house.get("web")
    assert found is not None
    assert found.status["lastTermination"]["reason"] == "Killed"
    events = [each for each in house.store.events() if each.reason == "NotSecured"]
    assert [each.message for each in events] == ["seccomp: found none, wanted filter"]


def test_a_change_of_the_spec_is_a_new_try(house: LoopHarness) -> None:
    house.engine.hostile = {"seccomp": 0}
    house.apply("web")
    house.settle()
    house.engine.hostile = {}
    house.apply("web", template={"env": [{"name": "AGAIN"}]})
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("web", "Secured") == "True Attested"


def test_suspended_and_back_is_a_new_try(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    house.engine.open_root(house.container_name("web"))
    assert attest(house).verdict.status == "False"
    house.settle()
    assert state(house) is State.EXITED
    house.apply("web", runState="Suspended")
    house.settle()
    assert house.condition("web", "Ready") == "False Suspended"
    house.apply("web", runState="Running")
    house.settle()
    assert house.condition("web", "Secured") == "True Attested"


def test_who_only_wants_to_be_told_is_only_told(house: LoopHarness) -> None:
    house.turn._policy = Policy(report_only=True)
    house.engine.hostile = {"groups": (0,)}
    house.apply("web")
    house.settle()
    assert state(house) is State.RUNNING
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("web", "Secured") == "False NotSecured"


def test_a_network_by_hand_is_taken_off_and_nothing_is_killed(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    house.engine.connect(house.container_name("web"), "bridge")
    house.settle()
    assert state(house) is State.RUNNING
    assert house.condition("web", "Secured") == "True Attested"


def test_on_demand_it_is_read_anew(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    found = attest(house)
    assert (found.verdict.status, found.verdict.reason) == ("True", "Attested")
    assert {"seccomp", "user", "read-only root"} <= {each.name for each in found.verdict.compared}
    house.engine.lose_events()
    house.engine.tamper(house.container_name("web"), uid=0)
    found = attest(house)
    assert (found.verdict.status, found.verdict.message) == ("False", "user: found 0:20000, wanted 20000:20000")


def test_what_does_not_run_has_no_inside(house: LoopHarness) -> None:
    house.apply("web", runState="Suspended")
    house.settle()
    assert (attest(house).verdict.status, attest(house).verdict.reason) == ("Unknown", "NotRunning")


def test_what_can_not_be_told(house: LoopHarness) -> None:
    with pytest.raises(NotFound):
        attest(house)
    house.apply("web")
    with pytest.raises(ServiceUnavailable, match="has not observed it yet"):
        attest(house)
    house.settle()
    house.engine.go_down()
    with pytest.raises(ServiceUnavailable, match="try again"):
        attest(house)
