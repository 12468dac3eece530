"""A host that is short of memory: what was promised is kept, and what is idle sleeps until there is room."""

from typing import Any

import pytest

from controller.kinds.observed.pressure import NONE, Pressure
from tests.plan.history import TINY, History

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 3600, "shutdownGracePeriodSeconds": 0}
LOW = Pressure(low=("memory",), measured=("memory",))
CRITICAL = Pressure(low=("memory",), critical=("memory",), measured=("memory",))


@pytest.fixture
def history() -> History:
    history = History()
    history.engine.at_rest = True
    return history


def set_pressure(history: History, pressure: Pressure) -> None:
    """From now on the host has this pressure; it is carried out."""
    history.pressure = pressure
    history.clock.advance(10)
    history.settle(seconds=30)


def test_what_was_promised_is_kept_through_a_crash(history: History) -> None:
    history.apply("a", lifecycle={"keepRunning": True})
    history.settle()
    set_pressure(history, CRITICAL)
    history.engine.kill(history.container_name("a"))
    history.settle(seconds=30)
    assert history.condition("a", "Ready") == "True Running"


def test_idle_sandboxes_sleep_when_it_gets_worse_and_no_others(history: History) -> None:
    history.apply("idle", lifecycle=IDLE)
    history.apply("used", lifecycle=IDLE)
    history.apply("kept", lifecycle={"keepRunning": True})
    history.apply("deletes", lifecycle={**IDLE, "onIdle": "Delete"})
    history.settle(seconds=5)
    history.engine.at_rest = False
    history.apply("busy", lifecycle=IDLE)
    history.settle(seconds=5)
    history.clock.advance(400)
    history.begin_use("used", wakes=False)
    set_pressure(history, LOW)
    assert history.condition("idle", "Ready") == "True Running", "low is not critical"
    set_pressure(history, CRITICAL)
    history.clock.advance(70)
    history.settle(seconds=30)
    assert history.condition("idle", "Suspended") == "True Evicted"
    assert "Evicted" in history.reasons("idle")
    for name in ("used", "busy", "kept", "deletes"):
        assert history.condition(name, "Ready") == "True Running"
    assert history.status("idle")["lastTermination"]["reason"] == "Evicted"


def test_a_busy_member_is_not_evicted_yet(history: History) -> None:
    history.put("SandboxTemplate", "t", image=TINY, command=["sleep", "1000000"])
    history.put("SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=1)
    history.run_pass()
    history.hang_members()
    history.run_pass()
    history.pressure = LOW
    evictions = [event for _ in range(3) for event in history.run_pass().writes.events if event.reason == "Evicted"]
    assert [instance.role for instance in history.instances()] == ["warm"]
    assert evictions == [], "a later pass retires it, and says so"


def test_an_evicted_sandbox_is_woken_once_there_is_room(history: History) -> None:
    history.apply("idle", lifecycle=IDLE)
    history.settle(seconds=5)
    history.clock.advance(400)
    set_pressure(history, CRITICAL)
    history.clock.advance(70)
    history.settle(seconds=30)
    history.daemon()
    set_pressure(history, CRITICAL)
    assert history.condition("idle", "Suspended") == "True Evicted", "also for the next daemon"
    history.begin_use("idle")
    history.settle(seconds=30)
    assert history.condition("idle", "Scheduled") == "False HostPressure"
    set_pressure(history, NONE)
    assert history.condition("idle", "Ready") == "True Running"
