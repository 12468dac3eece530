"""Attestation in the loop: what is not secured is killed, told, and stays down until somebody changes something."""

from collections.abc import Iterator

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.registry import discover
from controller.service.errors import NotFound, ServiceUnavailable
from controller.service.sandbox.attest import Attested
from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness


def state(house: LoopHarness) -> State:
    return house.engine.box(house.container_name("web")).state


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def attest(house: LoopHarness, name: str = "web") -> Attested:
    kind = discover().by_word("sandbox")
    assert kind is not None
    return house.services.attest.attest(kind, "default", name)


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


def test_on_demand_it_is_read_anew(house: LoopHarness) -> None:
    house.apply("web")
    house.settle()
    attested = attest(house)
    assert (attested.verdict.status, attested.verdict.reason) == ("True", "Attested")
    assert {"seccomp", "user", "read-only root"} <= {fact.name for fact in attested.verdict.compared}
    house.engine.lose_events()
    house.engine.tamper(house.container_name("web"), uid=0)
    observed = attest(house)
    assert (observed.verdict.status, observed.verdict.message) == ("False", "user: found 0:20000, wanted 20000:20000")


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
