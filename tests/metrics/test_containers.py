"""Metrics of a container's use."""

from dataclasses import replace

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.container import Limits
from controller.metrics.containers import ContainerCollector
from tests.metrics.made_up import (
    MIB,
    NOW,
    SPEC,
    USAGE,
    MadeUpUsage,
    Scraped,
    container,
    instance,
    layers,
    many,
    sandbox,
    scrape,
    snapshot,
)

HERE = {"namespace": "default", "sandbox": "box"}
SANDBOX = sandbox("box")


def scraped(seen: Snapshot | None, usage: MadeUpUsage | None = None, *, detail: bool = True) -> Scraped:
    measured = layers(seen) if seen else {}
    collector = ContainerCollector(lambda: seen, usage or MadeUpUsage(), layers=lambda: measured, detail=detail)
    return scrape(collector.collect)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_usage_seconds_total", 12.5),
        ("cpu_user_seconds_total", 10.25),
        ("cpu_system_seconds_total", 2.25),
        ("cpu_cfs_periods_total", 1000),
        ("cpu_cfs_throttled_periods_total", 10),
        ("cpu_cfs_throttled_seconds_total", 0.5),
        ("spec_cpu_limit_cores", 0.5),
        ("spec_cpu_shares", 512),
        ("memory_usage_bytes", 100 * MIB),
        ("memory_working_set_bytes", 80 * MIB),
        ("memory_rss_bytes", 60 * MIB),
        ("memory_cache_bytes", 30 * MIB),
        ("memory_kernel_bytes", 3 * MIB),
        ("memory_swap_bytes", 0),
        ("memory_peak_bytes", 120 * MIB),
        ("memory_major_page_faults_total", 4),
        ("memory_limit_hits_total", 2),
        ("oom_kills_total", 1),
        ("spec_memory_limit_bytes", 256 * MIB),
        ("spec_memory_swap_limit_bytes", 0),
        ("network_receive_bytes_total", 1),
        ("network_transmit_bytes_total", 2),
        ("network_receive_packets_total", 3),
        ("network_transmit_packets_total", 4),
        ("network_receive_errors_total", 5),
        ("network_transmit_errors_total", 6),
        ("network_receive_packets_dropped_total", 7),
        ("network_transmit_packets_dropped_total", 8),
        ("fs_reads_bytes_total", 4096),
        ("fs_writes_bytes_total", 8192),
        ("fs_reads_total", 1),
        ("fs_writes_total", 2),
        ("fs_usage_bytes", 5 * MIB),
        ("fs_limit_bytes", 9 * MIB),
        ("fs_usage_measured_timestamp_seconds", NOW - 10),
        ("log_bytes", 300),
        ("pressure_cpu_waiting_seconds_total", 1.5),
        ("pressure_cpu_stalled_seconds_total", 0),
        ("pressure_memory_waiting_seconds_total", 2.5),
        ("pressure_memory_stalled_seconds_total", 2),
        ("pressure_io_waiting_seconds_total", 3.5),
        ("pressure_io_stalled_seconds_total", 3),
        ("pids", 7),
        ("pids_peak", 11),
        ("pids_limit", 128),
        ("pids_limit_hits_total", 0),
        ("start_time_seconds", NOW - 50),
        ("restarts_total", 2),
    ],
)
def test_each_figure_is_where_it_belongs(name: str, value: float) -> None:
    requested = sandbox("box", {**SPEC, "resources": {"limits": {"disk": "9Mi"}}})
    sandbox_a = container(SANDBOX.obj, limits=Limits(500, 256 * MIB, 128, cpu_shares=512))
    observed = snapshot(requested, containers=[sandbox_a])
    reserved = instance(SANDBOX.obj)
    held_instance = replace(reserved, reserves=replace(reserved.reserves, disk_bytes=99 * MIB))  # with its volumes
    printed = scraped(replace(observed, instances={SANDBOX.obj.uid: held_instance}))
    assert printed.value(f"paddock_container_{name}", **HERE, container=sandbox_a.name) == value


def test_info_has_the_facts_to_join_on() -> None:
    count = scraped(snapshot(SANDBOX)).value(
        "paddock_container_info",
        **HERE,
        container_id="id-of-box",
        image="paddock/python:1",
        image_id="sha256:abc",
        runtime="runc",
        network="bridge",
        security_level="full-isolation",
        pool="",
    )
    assert count == 1


def test_what_is_not_known_is_absent_never_0() -> None:
    unknown = {"cpu_periods": None, "memory_limit_bytes": None, "pids_peak": None, "network": None}
    printed = scraped(snapshot(SANDBOX), MadeUpUsage(USAGE._replace(**unknown)))
    for name in ("cpu_cfs_periods_total", "spec_memory_limit_bytes", "pids_peak", "network_receive_bytes_total"):
        assert printed.value(f"paddock_container_{name}", **HERE) is None
    assert printed.value("paddock_container_spec_cpu_shares", **HERE) is None
    assert printed.value("paddock_container_pids", **HERE) == 7


@pytest.mark.parametrize("state", sorted(set(State) - {State.RUNNING, State.PAUSED}))
def test_a_container_that_does_not_run_exports_nothing(state: State) -> None:
    printed = scraped(snapshot(SANDBOX, containers=[container(SANDBOX.obj, state=state, pid=0)]))
    assert printed.names(sandbox="box") == []
    assert printed.value("paddock_stats_scrape_errors", source="cgroup2") == 0


def test_a_paused_container_is_still_measured() -> None:
    printed = scraped(snapshot(SANDBOX, containers=[container(SANDBOX.obj, state=State.PAUSED)]))
    assert printed.value("paddock_container_memory_usage_bytes", **HERE) == 100 * MIB


def test_an_unreadable_container_is_left_out_whole_and_counted() -> None:
    second = sandbox("other")
    printed = scraped(snapshot(SANDBOX, second), MadeUpUsage(**{"id-of-box": None}))
    assert printed.names(sandbox="box") == []
    assert printed.value("paddock_container_pids", sandbox="other") == 7
    assert printed.value("paddock_stats_scrape_errors", source="cgroup2") == 1
    assert printed.value("paddock_stats_containers", source="cgroup2") == 1
    assert printed.value("paddock_stats_containers", source="cgroup1") == 0


def test_errors_are_told_of_the_hosts_own_cgroup_version() -> None:
    observed = snapshot(SANDBOX)
    facts = replace(observed.observed.facts, cgroup_version="1")
    printed = scraped(replace(observed, observed=replace(observed.observed, facts=facts)), MadeUpUsage(None))
    assert printed.value("paddock_stats_scrape_errors", source="cgroup1") == 1
    assert printed.value("paddock_stats_scrape_errors", source="cgroup2") == 0


def test_series_vanish_with_their_object_at_the_next_scrape() -> None:
    now = [many(2)]
    collector = ContainerCollector(lambda: now[0], MadeUpUsage())
    assert scrape(collector.collect).names(sandbox="box-0001")
    now[0] = many(1)
    after = scrape(collector.collect)
    assert after.names(sandbox="box-0001") == []
    assert after.names(sandbox="box-0000")


def test_a_container_without_an_object_is_not_shown() -> None:
    stray = container(sandbox("stray").obj)
    printed = scraped(snapshot(SANDBOX, containers=[container(SANDBOX.obj), stray]))
    assert {sample.labels["sandbox"] for sample in printed.samples if "sandbox" in sample.labels} == {"box"}


def test_a_new_container_of_the_same_sandbox_goes_on_with_the_same_series() -> None:
    def series(id_: str) -> set[tuple[str, ...]]:
        printed = scraped(snapshot(SANDBOX, containers=[container(SANDBOX.obj, id=id_)]))
        stored = [
            sample
            for sample in printed.samples
            if "sandbox" in sample.labels and sample.name != "paddock_container_info"
        ]
        return {(entry.name, *entry.labels.values()) for entry in stored}

    assert series("first") == series("second")


def test_before_the_first_snapshot_there_is_only_the_reading_itself() -> None:
    printed = scraped(None)
    assert printed.names(namespace="default") == []
    assert printed.value("paddock_stats_containers", source="cgroup2") == 0
    assert (printed.value("paddock_stats_scrape_duration_seconds") or 0) > 0


def test_while_the_engine_does_not_answer_the_cgroups_still_do() -> None:
    assert scraped(snapshot(SANDBOX, blind="the engine does not answer")).value("paddock_container_pids", **HERE) == 7
