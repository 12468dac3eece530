"""Bulkhead: once a call for a container hangs, others for it are refused, and other containers are unaffected."""

import pytest

from controller.engine.docker.bulkhead import Bulkhead
from controller.engine.docker.errors import Fault, outcome_of
from controller.kinds.planning.outcome import Waiting
from tests.conftest import HandClock


@pytest.fixture
def bulkhead(clock: HandClock) -> Bulkhead:
    return Bulkhead(max_wait_seconds=1.0, ticks=clock.now)


def test_calls_go_side_by_side_while_none_hangs(bulkhead: Bulkhead, clock: HandClock) -> None:
    with bulkhead.entered("a"):
        clock.advance(0.9)
        with bulkhead.entered("a"):
            pass


def test_one_alone_waits_for_a_container_that_hangs(bulkhead: Bulkhead, clock: HandClock) -> None:
    with bulkhead.entered("a"):
        clock.advance(1.0)
        with pytest.raises(Fault, match=r"has waited 1\.0 s") as refusal, bulkhead.entered("a"):
            pass
        with bulkhead.entered("b"):
            pass
    outcome = outcome_of(refusal.value)
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "Unreadable"
    with bulkhead.entered("a"):
        pass


def test_a_call_that_fails_leaves_its_place(bulkhead: Bulkhead, clock: HandClock) -> None:
    with pytest.raises(Fault), bulkhead.entered("a"):
        raise Fault("timeout", "no answer")
    clock.advance(5)
    with bulkhead.entered("a"):
        pass
