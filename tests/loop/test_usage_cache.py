"""Samples of use, and the events that come of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from controller.kinds.meta import ObjectRef
from controller.kinds.observed.observed import State
from controller.kinds.observed.usage import FolderUse, LayerUsage, Usage
from controller.loop.tasks.health import HealthWatch
from controller.loop.tasks.usage_cache import UsageCache
from controller.store.sql_store import SqlStore
from tests.loop.harness import LoopHarness
from tests.metrics.made_up import MIB, USAGE
from tests.migrated import open_store

HOST = ObjectRef("Host", "", "host", "uid-of-host")


class Meters:
    """A UsageReader whose figures a test sets; counts how often it was asked."""

    def __init__(self) -> None:
        self.usage: Usage | None = USAGE._replace(cpu_usage_seconds=0.0)
        self.asked = 0

    def read(self, containers: object) -> Mapping[str, Usage]:
        self.asked += 1
        assert isinstance(containers, list)
        return {container.id: self.usage for container in containers if self.usage is not None}


class Watched(LoopHarness):
    """A harness with one sandbox, its samples, and the watch over its health."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__(store)
        self.apply("box")
        self.settle()
        self.meters, self.disk, self.written = Meters(), 0.5, 0
        self.price, self.spent = 0.0, 0.0
        self.folders: list[FolderUse] = []
        self.samples = UsageCache(lambda: self.reconcile_pass.last, self.meters, self.clock)
        self.health = HealthWatch(
            snapshot=lambda: self.reconcile_pass.last,
            samples=self.samples.now,
            store=store,
            clock=self.clock,
            host=HOST,
            disk=lambda: self.disk,
            layers=lambda: {name: LayerUsage(self.written, self.clock.now()) for name in self.running},
            folders=lambda _: self.folders,
            spent=self._spend,
        )

    def _spend(self) -> float:
        """The processor time so far: each look takes `price` seconds of it."""
        self.spent += self.price
        return self.spent

    @property
    def uid(self) -> str:
        answer = self.get("box")
        assert answer is not None
        return answer.uid

    @property
    def running(self) -> list[str]:
        return [container.id for container in self.engine.observe().containers[self.uid]]

    def use(self, **figures: object) -> list[str]:
        """Fifteen seconds later it uses so much: the reasons of the events so far."""
        assert self.meters.usage is not None
        self.clock.advance(15)
        self.meters.usage = self.meters.usage._replace(**figures)
        self.health.observe_now()
        return self.reasons(self.uid)

    def reasons(self, uid: str) -> list[str]:
        return [event.reason for event in self.store.events(uid=uid) if event.reason.endswith("Limit")]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Watched]:
    with open_store(tmp_path) as store:
        watched = Watched(store)
        yield watched
        watched.close()


def test_full_memory_folders_are_reported_each(harness: Watched) -> None:
    harness.folders = [FolderUse("/tmp", 64 * MIB, 64 * MIB), FolderUse("/workspace", MIB, 64 * MIB)]
    assert harness.use() == ["FolderNearLimit"]
    assert harness.use() == ["FolderNearLimit"]
    harness.folders[1] = FolderUse("/workspace", MIB, 64 * MIB, files=1.0)
    assert sorted(harness.use()) == ["FolderNearLimit", "FolderNearLimit"]
    texts = [event.message for event in harness.store.events(uid=harness.uid) if event.reason == "FolderNearLimit"]
    assert sorted(texts) == [
        "in-memory folder: over 90% of `/tmp` (64Mi) is in use",
        "in-memory folder: over 90% of `/workspace` (64Mi) is in use",
    ]
    harness.folders = [FolderUse("/tmp", 0, 64 * MIB)]
    assert "FolderBelowLimit" in harness.use()


def test_a_container_that_just_started_has_figures(harness: Watched) -> None:
    assert harness.samples.now().keys() == {harness.uid}
    requested = harness.meters.asked
    harness.apply("late")
    harness.settle()
    late = harness.get("late")
    assert late is not None
    assert harness.samples.now().keys() == {harness.uid, late.uid}, "within the same second"
    harness.run_pass()
    harness.samples.now()
    assert harness.meters.asked == requested + 1


def test_cpu_is_what_was_used_since_the_last_sample(harness: Watched) -> None:
    first = harness.samples.now()[harness.uid]
    harness.clock.advance(10)
    assert harness.meters.usage is not None
    harness.meters.usage = harness.meters.usage._replace(cpu_usage_seconds=first.usage.cpu_usage_seconds + 2.5)
    second = harness.samples.now()[harness.uid]
    assert (second.cpu_cores, second.window_seconds) == (0.25, 10)


def test_the_first_sample_of_a_run_is_told_by_the_time_since_it_started(harness: Watched) -> None:
    harness.clock.advance(20)
    started = harness.engine.observe().containers[harness.uid][0].started_at
    harness.meters.usage = USAGE._replace(cpu_usage_seconds=(harness.clock.now() - started) / 2)
    assert harness.samples.now()[harness.uid].cpu_cores == pytest.approx(0.5)


def test_it_is_read_at_most_once_a_second(harness: Watched) -> None:
    harness.samples.now()
    harness.samples.now()
    assert harness.meters.asked == 1
    harness.clock.advance(1)
    harness.samples.now()
    assert harness.meters.asked == 2
    harness.clock.advance(-100)  # a clock that was set back must not stop it
    harness.samples.now()
    assert harness.meters.asked == 3


def test_what_does_not_run_or_can_not_be_read_has_no_sample(harness: Watched) -> None:
    harness.meters.usage = None
    assert harness.samples.now() == {}
    harness.clock.advance(1)
    harness.meters.usage = USAGE
    harness.apply("box", runState="Suspended")
    harness.settle()
    harness.clock.advance(1)
    assert harness.samples.now() == {}


def test_memory_near_its_limit_is_an_event_and_so_is_the_end_of_it(harness: Watched) -> None:
    assert harness.use(memory_working_set_bytes=100 * MIB) == []
    assert harness.use(memory_working_set_bytes=250 * MIB) == ["MemoryNearLimit"]
    assert harness.use(memory_working_set_bytes=251 * MIB) == ["MemoryNearLimit"]
    assert harness.use(memory_working_set_bytes=100 * MIB) == ["MemoryNearLimit", "MemoryBelowLimit"]
    events = harness.store.events(uid=harness.uid)
    message = {event.reason: (event.type, event.message) for event in events}
    assert message["MemoryNearLimit"] == ("Warning", "memory: over 90% of its limit of 256Mi is in use")


def test_cpu_tasks_and_the_engines_disk(harness: Watched) -> None:
    for number in range(1, 5):
        use = harness.use(cpu_usage_seconds=7.5 * number + 1000)
    assert use in ([], ["CpuNearLimit"])
    assert "CpuNearLimit" in harness.use(cpu_usage_seconds=7.5 * 5 + 1000)
    assert "PidsNearLimit" in harness.use(pids=127)
    harness.disk = 0.95
    harness.use()
    assert harness.reasons(HOST.uid) == ["DiskNearLimit"]


def test_the_disk_that_a_sandbox_was_promised_is_told_when_it_has_nearly_written_it(harness: Watched) -> None:
    harness.written = 85 * MIB
    assert harness.use() == [], "nothing was promised"
    harness.apply("box", resources={"limits": {"disk": "100Mi"}})
    harness.settle()
    assert harness.use() == ["DiskNearLimit"]
    messages = {event.reason: event.message for event in harness.store.events(uid=harness.uid)}
    assert messages["DiskNearLimit"] == "disk: over 80% of its limit of 100Mi is in use"
    harness.written = 10 * MIB
    assert harness.use() == ["DiskNearLimit", "DiskBelowLimit"]


def test_a_new_run_begins_well(harness: Watched) -> None:
    harness.use(pids=127)
    harness.engine.kill(harness.container_name("box"))
    harness.settle()
    harness.use(pids=3)
    assert harness.reasons(harness.uid) == ["PidsNearLimit"], "the end of a run is no recovery"


def test_a_limit_raised_is_the_end_of_it(harness: Watched) -> None:
    harness.use(pids=120)
    assert harness.use(pids_limit=1000) == ["PidsNearLimit", "PidsBelowLimit"]


def test_looks_that_take_long_are_taken_less_often(harness: Watched) -> None:
    harness.price = 0.1  # as with some hundreds of sandboxes
    before = harness.meters.asked
    for _ in range(20):
        harness.use()
    assert harness.meters.asked - before == 5
    harness.clock.advance(-3600)
    requested = harness.meters.asked
    harness.health.observe_now()
    assert harness.meters.asked > requested, "a clock that was set back makes it wait for nothing"


def test_a_container_that_the_engine_does_not_tell_of_is_read_as_before(harness: Watched) -> None:
    harness.engine.unreadable(harness.uid)
    harness.engine.go_down("no answer in time")
    harness.run_pass()
    assert harness.engine.observe().containers[harness.uid][0].state is State.UNKNOWN
    assert harness.samples.now().keys() == {harness.uid}
    harness.clock.advance(1)
    harness.meters.usage = None  # its process has ended
    assert harness.samples.now() == {}
