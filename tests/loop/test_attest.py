"""Attestation in the loop: what is not secured is killed, told, and stays down until somebody changes something."""

from collections.abc import Iterator

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.registry import discover
from controller.service.errors import NotFound, ServiceUnavailable
from controller.service.sandbox.attest import Attested
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness


def state(harness: LoopHarness) -> State:
    return harness.engine.container(harness.container_name("web")).state


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def attest(harness: LoopHarness, name: str = "web") -> Attested:
    kind = discover().by_word("sandbox")
    assert kind is not None
    return harness.services.attest.attest(kind, "default", name)


def test_suspended_and_back_is_a_new_try(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    harness.engine.open_root(harness.container_name("web"))
    assert attest(harness).verdict.status == "False"
    harness.settle()
    assert state(harness) is State.EXITED
    harness.apply("web", runState="Suspended")
    harness.settle()
    assert harness.condition("web", "Ready") == "False Suspended"
    harness.apply("web", runState="Running")
    harness.settle()
    assert harness.condition("web", "Secured") == "True Attested"


def test_on_demand_it_is_read_anew(harness: LoopHarness) -> None:
    harness.apply("web")
    harness.settle()
    attested = attest(harness)
    assert (attested.verdict.status, attested.verdict.reason) == ("True", "Attested")
    assert {"seccomp", "user", "read-only root"} <= {fact.name for fact in attested.verdict.compared}
    harness.engine.lose_events()
    harness.engine.tamper(harness.container_name("web"), uid=0)
    observed = attest(harness)
    assert (observed.verdict.status, observed.verdict.message) == ("False", "user: found 0:20000, wanted 20000:20000")


def test_what_does_not_run_has_no_inside(harness: LoopHarness) -> None:
    harness.apply("web", runState="Suspended")
    harness.settle()
    assert (attest(harness).verdict.status, attest(harness).verdict.reason) == ("Unknown", "NotRunning")


def test_what_can_not_be_told(harness: LoopHarness) -> None:
    with pytest.raises(NotFound):
        attest(harness)
    harness.apply("web")
    with pytest.raises(ServiceUnavailable, match="has not observed it yet"):
        attest(harness)
    harness.settle()
    harness.engine.go_down()
    with pytest.raises(ServiceUnavailable, match="try again"):
        attest(harness)
