"""Usage of the last hour, as `get_metrics` returns it."""

from types import SimpleNamespace
from typing import Any

from controller.e2b.control.usage_history import UsageHistory
from controller.e2b.metadata import LABEL
from controller.kinds.meta import StoredObject
from controller.service.sandbox.usage import DiskUse
from tests.conftest import HandClock


class Usages:
    """Usage of two sandboxes, of which one is of this protocol."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock

    def of_all(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(usages=[self._usage("ours", {LABEL: "true"}), self._usage("other", {})])

    def disk(self, _: Any) -> DiskUse:
        return DiskUse(5, 6)

    def _usage(self, uid: str, labels: dict[str, str]) -> Any:
        counters = SimpleNamespace(memory_working_set_bytes=1, memory_limit_bytes=2, memory_cache_bytes=None)
        sample = SimpleNamespace(usage=counters, container=None, at=self._clock.now(), cpu_cores=0.123456)
        return SimpleNamespace(obj=StoredObject("Sandbox", "default", uid, uid, {}, labels=labels), sample=sample)


def test_readings_are_those_of_the_last_hour() -> None:
    clock = HandClock()
    usages: Any = Usages(clock)
    history, start = UsageHistory(usages, clock.now), clock.now()
    for _ in range(300):
        clock.advance(15)
        history.sample()
    readings = history.of("ours", 0, clock.now())
    assert (len(readings), readings[-1].at, readings[0].at > start + 300 * 15 - 3601) == (240, clock.now(), True)
    assert (readings[0].cpu_percent, readings[0].disk, readings[0].cache) == (12.35, 5, 0)
    assert history.of("other", 0, clock.now()) == []
    assert [reading.at for reading in history.of("ours", clock.now() - 15, int(clock.now()))] == [
        clock.now() - 15,
        clock.now(),
    ]
    usages.of_all = lambda *_, **__: SimpleNamespace(usages=[])
    clock.advance(3601)
    history.sample()
    assert history.of("ours", 0, clock.now()) == []
