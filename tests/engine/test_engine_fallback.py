"""Usage by the engine's own figures, where the files can't be read; without an engine."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.engine.docker.errors import Fault
from controller.engine.usage.engine_stats import usage_from_stats
from controller.engine.usage.fallback import FallbackUsage
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.container import Limits
from tests.daemon import wait_for
from tests.metrics.made_up import USAGE, MadeUpUsage

LIMITS = Limits(cpu_millicores=500, memory_bytes=1000, pids=64)
BOX = Container("c1", "box", "u1", State.RUNNING, limits=LIMITS, pid=7, started_at=1.0, networks=("bridge",))
V1: dict[str, Any] = {
    "cpu_stats": {
        "cpu_usage": {"total_usage": 3_000_000_000, "usage_in_usermode": 2_000_000_000, "usage_in_kernelmode": 10**9},
        "throttling_data": {"periods": 9, "throttled_periods": 4, "throttled_time": 500_000_000},
    },
    "memory_stats": {
        "usage": 900,
        "max_usage": 950,
        "stats": {"total_rss": 500, "total_cache": 300, "total_inactive_file": 100, "total_pgmajfault": 2},
        "limit": 10**12,
    },
    "pids_stats": {"current": 5},
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"major": 8, "minor": 0, "op": "Read", "value": 10},
            {"major": 8, "minor": 16, "op": "Read", "value": 5},
            {"major": 8, "minor": 0, "op": "Write", "value": 7},
            {"major": 8, "minor": 0, "op": "Total", "value": 17},
        ],
        "io_serviced_recursive": [{"op": "Read", "value": 2}, {"op": "Write", "value": 1}],
    },
    "networks": {"eth0": {"rx_bytes": 1, "tx_bytes": 2}, "eth1": {"rx_bytes": 10, "tx_bytes": 20, "rx_dropped": 3}},
}
V2: dict[str, Any] = {
    **V1,
    "memory_stats": {"usage": 900, "stats": {"anon": 400, "file": 300, "inactive_file": 100, "pgmajfault": 1}},
    "blkio_stats": {"io_service_bytes_recursive": [{"op": "read", "value": 3}], "io_serviced_recursive": None},
}


def test_an_answer_of_a_cgroup_v1_host() -> None:
    usage = usage_from_stats(V1, BOX)
    assert usage is not None
    assert (usage.cpu_usage_seconds, usage.cpu_user_seconds, usage.cpu_system_seconds) == (3, 2, 1)
    assert (usage.cpu_periods, usage.cpu_throttled_periods, usage.cpu_throttled_seconds) == (9, 4, 0.5)
    assert (usage.memory_working_set_bytes, usage.memory_rss_bytes, usage.memory_peak_bytes) == (800, 500, 950)
    assert (usage.fs_read_bytes, usage.fs_write_bytes, usage.fs_reads, usage.fs_writes) == (15, 7, 2, 1)
    assert usage.network is not None
    assert (usage.network.receive_bytes, usage.network.transmit_bytes, usage.network.receive_dropped) == (11, 22, 3)
    assert (usage.memory_limit_bytes, usage.pids_limit, usage.cpu_limit_cores) == (1000, 64, 0.5)
    assert (usage.oom_kills, usage.memory_limit_hits) == (None, None), "not told is absent, never 0"


def test_an_answer_of_a_cgroup_v2_host() -> None:
    usage = usage_from_stats(V2, BOX)
    assert usage is not None
    assert (usage.memory_rss_bytes, usage.memory_cache_bytes, usage.memory_peak_bytes) == (400, 300, None)
    assert (usage.fs_read_bytes, usage.fs_write_bytes, usage.fs_reads) == (3, 0, None)


def test_no_limit_and_no_network_are_absent() -> None:
    bare = replace(BOX, limits=Limits(0, 0, 0), networks=("none",))
    usage = usage_from_stats(V1, bare)
    assert usage is not None
    assert (usage.memory_limit_bytes, usage.pids_limit, usage.cpu_periods, usage.network) == (None, None, None, None)


def test_zeros_of_a_stopped_container_are_no_figures() -> None:
    stopped = {"cpu_stats": {"cpu_usage": {"total_usage": 0}}, "memory_stats": {}, "pids_stats": {}}
    assert usage_from_stats(stopped, BOX) is None


class Engine:
    """Answers, counts how many are asked at a time, and can be told to wait or to fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self.may = threading.Event()
        self.may.set()
        self.fails = False

    def ask(self, container_id: str) -> Mapping[str, Any]:
        with self._lock:
            self.asked.append(container_id)
            self._now += 1
            self.most = max(self.most, self._now)
        assert self.may.wait(30)
        with self._lock:
            self._now -= 1
        if self.fails:
            raise Fault("5xx", "no")
        return V1


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_while_the_files_can_be_read_the_engine_is_not_asked(engine: Engine) -> None:
    reader = FallbackUsage(MadeUpUsage(), engine.ask)
    assert reader.read([BOX])["c1"] is USAGE
    reader.close()
    assert engine.asked == []


def test_what_was_missed_is_there_at_the_next_reading_and_nobody_waits(engine: Engine) -> None:
    engine.may.clear()
    reader = FallbackUsage(MadeUpUsage(None), engine.ask, pause_seconds=0.01)
    boxes = [replace(BOX, id=f"c{number}") for number in range(20)]
    assert reader.read(boxes) == {}, "at once, though the engine does not answer"
    wait_for("eight are asked", lambda: len(engine.asked) == 8)
    engine.may.set()
    found = wait_for("all are told", lambda: (read := reader.read(boxes)) and len(read) == 20 and read)
    reader.close()
    assert {each.source for each in found.values()} == {"docker_api"}
    assert engine.most == 8


def test_a_run_that_began_anew_does_not_get_the_figures_of_the_one_before(engine: Engine) -> None:
    reader = FallbackUsage(MadeUpUsage(None), engine.ask, pause_seconds=0.01)
    reader.read([BOX])
    wait_for("it is told", lambda: reader.read([BOX]))
    assert reader.read([replace(BOX, started_at=2.0)]) == {}
    reader.close()


def test_old_answers_are_not_told(engine: Engine) -> None:
    now = [0.0]
    reader = FallbackUsage(MadeUpUsage(None), engine.ask, ticks=lambda: now[0], pause_seconds=0.01)
    reader.read([BOX])
    wait_for("it is told", lambda: reader.read([BOX]))
    engine.fails = True
    now[0] = 1000.0
    assert reader.read([BOX]) == {}
    reader.close()
