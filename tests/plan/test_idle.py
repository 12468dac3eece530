"""Idleness: reaped in time, and never while used or busy."""

from typing import Any

import pytest

from controller.kinds.planning.plan import Plan
from controller.plan import host
from tests.plan.history import History

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}


@pytest.fixture
def history() -> History:
    history = History()
    history.engine.at_rest = True
    return history


def test_a_sandbox_that_nobody_uses_is_suspended_when_its_time_is_over_and_not_before(history: History) -> None:
    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=0)
    start = history.clock.now()
    plan = history.run_pass()
    assert plan.next_wake == pytest.approx(start + 60, abs=0.1)
    history.clock.advance(59)
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "True Running"
    history.settle(seconds=3)
    assert history.condition("web", "Suspended") == "True IdleReaped"
    assert history.condition("web", "Ready") == "False IdleReaped"
    web = history.object("Sandbox", "web")
    assert "runState" not in web.spec, "it is still to run"
    assert web.status["lastTermination"]["reason"] == "IdleReaped"
    assert web.status["restartCount"] == 0
    calls, revision = len(history.engine.calls), history.revision
    history.settle(seconds=10_000)
    history.daemon()
    history.settle(seconds=10_000)
    assert (len(history.engine.calls), history.revision) == (calls, revision)
    assert [event.reason for event in history.events_of("web")].count("IdleReaped") == 1


def test_a_change_of_the_spec_wakes_it(history: History) -> None:
    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=0)
    history.settle(seconds=70)
    assert history.condition("web", "Suspended") == "True IdleReaped"
    history.apply("web", lifecycle={**IDLE, "idleTimeoutSeconds": 61})
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "True Running"


def test_a_sandbox_that_computes_is_not_idle(history: History) -> None:
    history.engine.at_rest = False
    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=400)
    history.settle(seconds=400)
    assert history.condition("web", "Ready") == "True Running"
    history.engine.container(history.container_name("web")).at_rest = True
    history.settle(seconds=130)
    assert history.condition("web", "Suspended") == "True IdleReaped"


def test_what_can_not_be_measured_is_not_called_idle(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.engine, "cpu_seconds", lambda containers: {})
    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=400)
    assert history.condition("web", "Ready") == "True Running"


def test_services_and_specs_from_before_the_timeout_are_never_idle(history: History) -> None:
    history.apply("service", lifecycle={**IDLE, "keepRunning": True})
    history.apply("old", lifecycle={"shutdownGracePeriodSeconds": 10})
    history.settle(seconds=0)
    assert history.run_pass().next_wake is None


def test_delete_on_idle(history: History) -> None:
    history.apply("web", lifecycle={**IDLE, "onIdle": "Delete"})
    history.settle(seconds=0)
    history.settle(seconds=70)
    assert (history.names(), history.containers(), list(history.instances())) == ([], {}, [])


def test_a_clock_set_back_reaps_nothing_early(history: History) -> None:
    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=0)
    history.clock.advance(-10_000)
    history.go_on(50)
    assert history.condition("web", "Ready") == "True Running"


def test_a_settled_idle_sandbox_costs_the_planner_nothing(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=0)
    planned: list[Plan] = []
    monkeypatch.setattr(host, "decide", lambda case: planned.append(case))
    assert history.run_pass().next_wake is not None
    assert planned == []
