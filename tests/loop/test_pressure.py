"""A host that is short of something: starts pause, warm members go, what is used stays."""

from structlog.testing import LogCapture

from controller.kinds.observed.pressure import HostUse, Supply
from controller.kinds.registry import discover
from controller.loop.tasks.pressure import PressureWatch
from controller.policy.host.pressure import CALM_SECONDS
from tests.conftest import HandClock
from tests.loop.harness import LoopHarness
from tests.loop.test_pools import containers, filled, harness, launch, pool
from tests.plain_logs import configure_plain_logs

__all__ = ["harness"]


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


def test_waits_for_memory_are_logged_as_they_change(clock: HandClock) -> None:
    class Stalling:
        def read(self, root_dir: str) -> HostUse:
            return HostUse(clock.now(), memory_stall=next(shares))

    shares = iter((0.0, 0.5, 0.5, 0.0))
    watch = PressureWatch(Stalling(), clock)
    capture = LogCapture()
    configure_plain_logs(capture)
    for _ in range(4):
        watch.observe_now("")
        clock.advance(10)
    configure_plain_logs()
    assert [(line["event"], line["stalls"]) for line in capture.entries] == [
        ("pressure changed", True),
        ("pressure changed", False),
    ]
