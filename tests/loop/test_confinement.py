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
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store(), policy=Policy(confinements=Confinements(runtimes=("runsc",))))
    yield harness
    harness.close()


def becomes(harness: LoopHarness, facts: HostFacts) -> None:
    harness.engine.facts = facts
    harness.engine.observe_now()
    harness.settle()


def test_a_sandbox_says_what_confines_it_and_a_host_that_lacks_it_makes_none(harness: LoopHarness) -> None:
    becomes(harness, APPARMOR)
    harness.apply("a", template={"appArmorProfile": "docker-default", "runtime": "runsc"})
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    config = harness.engine.box(harness.container_name("a")).config
    assert config is not None
    assert (config.runtime, config.security_options[-1]) == ("runsc", "apparmor=docker-default")
    becomes(harness, FACTS)
    harness.engine.remove(harness.container_name("a"))
    harness.settle()
    assert harness.condition("a", "Accepted") == "False Refused"
    assert not harness.engine.exists(harness.container_name("a"))


def test_the_engines_own_confinement_is_attested(harness: LoopHarness) -> None:
    becomes(harness, APPARMOR)
    harness.engine.hostile = {"label": "unconfined"}
    harness.apply("a")
    harness.settle()
    assert harness.condition("a", "Secured").startswith("False")


def test_what_an_operator_does_not_allow_is_refused_at_the_listener(harness: LoopHarness) -> None:
    with pytest.raises(errors.Invalid, match="operator does not allow `kata`"):
        harness.apply("a", template={"runtime": "kata"})
