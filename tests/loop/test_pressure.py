"""A host that is short of something: starts pause, warm members go, what is idle sleeps, what is used stays."""

from controller.kinds.observed.pressure import HostUse, Supply
from controller.kinds.registry import discover
from controller.loop.tasks.pressure import PressureWatch
from controller.policy.host.pressure import CALM_SECONDS
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import boxes, filled, house, launch, pool

__all__ = ["house"]
IDLE = {"idleTimeoutSeconds": 3600, "shutdownGracePeriodSeconds": 0}


class Gauge:
    """A machine with so many per cent of its memory left."""

    def __init__(self, house: LoopHarness) -> None:
        self._house, self.left = house, 50
        house.reconcile_pass._pressure = PressureWatch(self, house.clock)

    def read(self, root_dir: str) -> HostUse:
        return HostUse(self._house.clock.now(), memory=Supply(self.left << 20, 100 << 20))

    def set(self, left: int) -> None:
        """From now on; told and carried out."""
        self.left = left
        self._house.clock.advance(10)
        self._house.settle(seconds=30)


def events(house: LoopHarness, kind: str, name: str) -> list[str]:
    return [event.reason for event in house.store.events(kind=kind, name=name)]


def host(house: LoopHarness) -> dict[str, str]:
    kind = discover().by_name("Host")
    assert kind is not None
    objects = house.services.objects.get(kind, "", "host")
    return {
        condition["type"]: f"{condition['status']} {condition['reason']}" for condition in objects.status["conditions"]
    }


def test_new_starts_pause_and_go_on_by_themselves(house: LoopHarness) -> None:
    gauge = Gauge(house)
    house.apply("before")
    house.settle()
    gauge.set(4)
    house.apply("new")
    house.settle(seconds=5)
    assert house.condition("new", "Scheduled") == "False HostPressure"
    assert "HostPressure" in events(house, "Sandbox", "new")
    assert house.condition("before", "Ready") == "True Running"
    assert host(house)["MemoryPressure"] == "True InsufficientMemory"
    assert host(house)["PIDPressure"] == "Unknown NotRead"
    gauge.set(20)
    assert house.condition("new", "Scheduled") == "False HostPressure", "not at once"
    house.clock.advance(CALM_SECONDS)
    house.settle(seconds=30)
    assert house.condition("new", "Ready") == "True Running"
    assert host(house)["MemoryPressure"] == "False SufficientMemory"


def test_what_was_promised_is_kept_through_a_crash(house: LoopHarness) -> None:
    gauge = Gauge(house)
    house.apply("a", lifecycle={"keepRunning": True})
    house.settle()
    gauge.set(1)
    house.engine.kill(house.container_name("a"))
    house.settle(seconds=30)
    assert house.condition("a", "Ready") == "True Running"


def test_warm_members_go_first_and_come_back(house: LoopHarness) -> None:
    gauge = Gauge(house)
    filled(house, 2)
    house.refer("a", "t")
    house.settle()
    gauge.set(4)
    assert boxes(house) == [house.container_name("a")]
    [ready] = [condition for condition in pool(house).status["conditions"] if condition["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "HostPressure")
    assert events(house, "SandboxPool", "warm").count("Evicted") == 2
    assert launch(house, "a") == "Warm: "
    gauge.set(50)
    house.clock.advance(CALM_SECONDS)
    house.settle(seconds=30)
    assert len(boxes(house)) == 3


def test_idle_sandboxes_sleep_when_it_gets_worse_and_no_others(house: LoopHarness) -> None:
    gauge = Gauge(house)
    house.engine.at_rest = True
    house.apply("idle", lifecycle=IDLE)
    house.apply("used", lifecycle=IDLE)
    house.apply("kept", lifecycle={"keepRunning": True})
    house.apply("deletes", lifecycle={**IDLE, "onIdle": "Delete"})
    house.settle(seconds=5)
    house.engine.at_rest = False
    house.apply("busy", lifecycle=IDLE)
    house.settle(seconds=5)
    house.clock.advance(400)
    answer = house.get("used")
    assert answer is not None
    house.activity.begin(answer.uid, asks=False)
    gauge.set(4)
    assert house.condition("idle", "Ready") == "True Running", "low is not critical"
    gauge.set(1)
    house.clock.advance(70)
    house.settle(seconds=30)
    assert house.condition("idle", "Suspended") == "True Evicted"
    assert "Evicted" in events(house, "Sandbox", "idle")
    for name in ("used", "busy", "kept", "deletes"):
        assert house.condition(name, "Ready") == "True Running"
    end = house.get("idle").status["lastTermination"]  # type: ignore[union-attr]
    assert end["reason"] == "Evicted"


def test_an_evicted_sandbox_is_woken_once_there_is_room(house: LoopHarness) -> None:
    gauge = Gauge(house)
    house.engine.at_rest = True
    house.apply("idle", lifecycle=IDLE)
    house.settle(seconds=5)
    house.clock.advance(400)
    gauge.set(1)
    house.clock.advance(70)
    house.settle(seconds=30)
    house.daemon()
    again = Gauge(house)
    again.set(1)
    assert house.condition("idle", "Suspended") == "True Evicted", "also for the next daemon"
    idle = house.get("idle")
    assert idle is not None
    house.activity.begin(idle.uid, asks=True)
    house.settle(seconds=30)
    assert house.condition("idle", "Scheduled") == "False HostPressure"
    again.set(50)
    house.clock.advance(CALM_SECONDS)
    house.settle(seconds=30)
    assert house.condition("idle", "Ready") == "True Running"
