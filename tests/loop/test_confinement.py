"""A host that loses what confines its sandboxes: what asks for it is refused from then on, by listeners and loop."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.kinds.observed.observed import HostFacts
from controller.policy.levels.abilities import Confinements
from controller.policy.levels.levels import Policy
from controller.service import errors
from tests.contract.store_worlds import World
from tests.fakes.engine import FACTS
from tests.loop.harness import LoopHarness

APPARMOR = replace(FACTS, security_options=(*FACTS.security_options, "name=apparmor"), runtimes=("runc", "runsc"))


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store(), policy=Policy(confinements=Confinements(runtimes=("runsc",))))
    yield harness
    harness.close()


def becomes(house: LoopHarness, facts: HostFacts) -> None:
    house.engine.facts = facts
    house.engine.observe_now()
    house.settle()


def test_a_sandbox_says_what_confines_it_and_a_host_that_lacks_it_makes_none(house: LoopHarness) -> None:
    becomes(house, APPARMOR)
    house.apply("a", template={"appArmorProfile": "docker-default", "runtime": "runsc"})
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    config = house.engine.box(house.container_name("a")).config
    assert config is not None
    assert (config.runtime, config.security_options[-1]) == ("runsc", "apparmor=docker-default")
    becomes(house, FACTS)
    house.engine.remove(house.container_name("a"))
    house.settle()
    assert house.condition("a", "Accepted") == "False Refused"
    assert not house.engine.exists(house.container_name("a"))


def test_the_engines_own_confinement_is_attested(house: LoopHarness) -> None:
    becomes(house, APPARMOR)
    house.engine.hostile = {"label": "unconfined"}
    house.apply("a")
    house.settle()
    assert house.condition("a", "Secured").startswith("False")


def test_what_an_operator_does_not_allow_is_refused_at_the_listener(house: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match="operator does not allow `kata`"):
        house.apply("a", template={"runtime": "kata"})
