"""A host that is short of something: starts pause, warm members go, what is idle sleeps, what is used stays."""

from controller.kinds.observed.pressure import HostUse, Supply
from controller.kinds.registry import discover
from controller.loop.tasks.pressure import PressureWatch
from controller.policy.host.pressure import CALM_SECONDS
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import containers, filled, harness, launch, pool

__all__ = ["harness"]
IDLE = {"idleTimeoutSeconds": 3600, "shutdownGracePeriodSeconds": 0}


class Gauge:
    """A machine with so many per cent of its memory left."""

    def __init__(self, harness: LoopHarness) -> None:
        self._harness, self.left = harness, 50
        harness.reconcile_pass._pressure = PressureWatch(self, harness.clock)

    def read(self, root_dir: str) -> HostUse:
        return HostUse(self._harness.clock.now(), memory=Supply(self.left << 20, 100 << 20))

    def set(self, left: int) -> None:
        """From now on; told and carried out."""
        self.left = left
        self._harness.clock.advance(10)
        self._harness.settle(seconds=30)


def events(harness: LoopHarness, kind: str, name: str) -> list[str]:
    return [event.reason for event in harness.store.events(kind=kind, name=name)]


def host(harness: LoopHarness) -> dict[str, str]:
    kind = discover().by_name("Host")
    assert kind is not None
    obj = harness.services.objects.get(kind, "", "host")
    return {condition["type"]: f"{condition['status']} {condition['reason']}" for condition in obj.status["conditions"]}


def test_new_starts_pause_and_go_on_by_themselves(harness: LoopHarness) -> None:
    gauge = Gauge(harness)
    harness.apply("before")
    harness.settle()
    gauge.set(4)
    harness.apply("new")
    harness.settle(seconds=5)
    assert harness.condition("new", "Scheduled") == "False HostPressure"
    assert "HostPressure" in events(harness, "Sandbox", "new")
    assert harness.condition("before", "Ready") == "True Running"
    assert host(harness)["MemoryPressure"] == "True InsufficientMemory"
    assert host(harness)["PIDPressure"] == "Unknown NotRead"
    gauge.set(20)
    assert harness.condition("new", "Scheduled") == "False HostPressure", "not at once"
    harness.clock.advance(CALM_SECONDS)
    harness.settle(seconds=30)
    assert harness.condition("new", "Ready") == "True Running"
    assert host(harness)["MemoryPressure"] == "False SufficientMemory"


def test_what_was_promised_is_kept_through_a_crash(harness: LoopHarness) -> None:
    gauge = Gauge(harness)
    harness.apply("a", lifecycle={"keepRunning": True})
    harness.settle()
    gauge.set(1)
    harness.engine.kill(harness.container_name("a"))
    harness.settle(seconds=30)
    assert harness.condition("a", "Ready") == "True Running"


def test_warm_members_go_first_and_come_back(harness: LoopHarness) -> None:
    gauge = Gauge(harness)
    filled(harness, 2)
    harness.refer("a", "t")
    harness.settle()
    gauge.set(4)
    assert containers(harness) == [harness.container_name("a")]
    [ready] = [condition for condition in pool(harness).status["conditions"] if condition["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "HostPressure")
    assert events(harness, "SandboxPool", "warm").count("Evicted") == 2
    assert launch(harness, "a") == "Warm: "
    gauge.set(50)
    harness.clock.advance(CALM_SECONDS)
    harness.settle(seconds=30)
    assert len(containers(harness)) == 3


def test_idle_sandboxes_sleep_when_it_gets_worse_and_no_others(harness: LoopHarness) -> None:
    gauge = Gauge(harness)
    harness.engine.at_rest = True
    harness.apply("idle", lifecycle=IDLE)
    harness.apply("used", lifecycle=IDLE)
    harness.apply("kept", lifecycle={"keepRunning": True})
    harness.apply("deletes", lifecycle={**IDLE, "onIdle": "Delete"})
    harness.settle(seconds=5)
    harness.engine.at_rest = False
    harness.apply("busy", lifecycle=IDLE)
    harness.settle(seconds=5)
    harness.clock.advance(400)
    answer = harness.get("used")
    assert answer is not None
    harness.activity.begin(answer.uid, asks=False)
    gauge.set(4)
    assert harness.condition("idle", "Ready") == "True Running", "low is not critical"
    gauge.set(1)
    harness.clock.advance(70)
    harness.settle(seconds=30)
    assert harness.condition("idle", "Suspended") == "True Evicted"
    assert "Evicted" in events(harness, "Sandbox", "idle")
    for name in ("used", "busy", "kept", "deletes"):
        assert harness.condition(name, "Ready") == "True Running"
    end = harness.get("idle").status["lastTermination"]  # type: ignore[union-attr]
    assert end["reason"] == "Evicted"


def test_an_evicted_sandbox_is_woken_once_there_is_room(harness: LoopHarness) -> None:
    gauge = Gauge(harness)
    harness.engine.at_rest = True
    harness.apply("idle", lifecycle=IDLE)
    harness.settle(seconds=5)
    harness.clock.advance(400)
    gauge.set(1)
    harness.clock.advance(70)
    harness.settle(seconds=30)
    harness.daemon()
    again = Gauge(harness)
    again.set(1)
    assert harness.condition("idle", "Suspended") == "True Evicted", "also for the next daemon"
    idle = harness.get("idle")
    assert idle is not None
    harness.activity.begin(idle.uid, asks=True)
    harness.settle(seconds=30)
    assert harness.condition("idle", "Scheduled") == "False HostPressure"
    again.set(50)
    harness.clock.advance(CALM_SECONDS)
    harness.settle(seconds=30)
    assert harness.condition("idle", "Ready") == "True Running"
