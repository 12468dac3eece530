"""A host that loses what confines its sandboxes: what asks for it is refused from then on."""

from dataclasses import replace

import pytest

from controller.kinds.observed.observed import HostFacts
from controller.policy.levels.abilities import Confinements
from controller.policy.levels.levels import Policy
from tests.fakes.engine import FACTS
from tests.plan.history import History

APPARMOR = replace(FACTS, security_options=(*FACTS.security_options, "name=apparmor"), runtimes=("runc", "runsc"))


@pytest.fixture
def history() -> History:
    return History(Policy(confinements=Confinements(runtimes=("runsc",))))


def becomes(history: History, facts: HostFacts) -> None:
    history.engine.facts = facts
    history.engine.observe_now()
    history.settle()


def test_a_sandbox_says_what_confines_it_and_a_host_that_lacks_it_makes_none(history: History) -> None:
    becomes(history, APPARMOR)
    history.apply("a", template={"appArmorProfile": "docker-default", "runtime": "runsc"})
    history.settle()
    assert history.condition("a", "Ready") == "True Running"
    config = history.engine.container(history.container_name("a")).config
    assert config is not None
    assert (config.runtime, config.security_options[-1]) == ("runsc", "apparmor=docker-default")
    becomes(history, FACTS)
    history.engine.remove(history.container_name("a"))
    history.settle()
    assert history.condition("a", "Accepted") == "False Refused"
    assert not history.engine.exists(history.container_name("a"))


def test_the_engines_own_confinement_is_attested(history: History) -> None:
    becomes(history, APPARMOR)
    history.engine.hostile = {"label": "unconfined"}
    history.apply("a")
    history.settle()
    assert history.condition("a", "Secured").startswith("False")
