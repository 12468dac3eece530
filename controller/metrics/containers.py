"""Usage of each running container, read from its cgroup at each scrape (sections A and M of the catalogue)."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock
from types import MappingProxyType
from typing import Any

from prometheus_client import Metric

from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import LayerUsage, Usage
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.sandbox import Template, at_own_level
from controller.metrics.catalogue import CONTAINERS
from controller.metrics.catalogue.containers import SOURCES
from controller.metrics.families import empty, enum, filled, single, text_family
from controller.metrics.probed import health_of
from controller.metrics.render import Labels, number_text
from controller.plan.sandbox.disk_limit import limit_of
from controller.ports import UsageReader


@dataclass(frozen=True, slots=True)
class Row:
    """One container whose usage was read, with the labels that all its samples share."""

    labels: Labels
    container: Container
    usage: Usage
    restarts: int | None
    disk_limit_bytes: int | None


# Source of each metric. None: this host does not provide it, or no limit is set; then there is no sample.
FIGURES: Mapping[str, str] = MappingProxyType(
    {
        "paddock_container_cpu_usage_seconds_total": "usage.cpu_usage_seconds",
        "paddock_container_cpu_user_seconds_total": "usage.cpu_user_seconds",
        "paddock_container_cpu_system_seconds_total": "usage.cpu_system_seconds",
        "paddock_container_cpu_cfs_periods_total": "usage.cpu_periods",
        "paddock_container_cpu_cfs_throttled_periods_total": "usage.cpu_throttled_periods",
        "paddock_container_cpu_cfs_throttled_seconds_total": "usage.cpu_throttled_seconds",
        "paddock_container_spec_cpu_limit_cores": "usage.cpu_limit_cores",
        "paddock_container_memory_usage_bytes": "usage.memory_usage_bytes",
        "paddock_container_memory_working_set_bytes": "usage.memory_working_set_bytes",
        "paddock_container_memory_rss_bytes": "usage.memory_rss_bytes",
        "paddock_container_memory_cache_bytes": "usage.memory_cache_bytes",
        "paddock_container_memory_kernel_bytes": "usage.memory_kernel_bytes",
        "paddock_container_memory_swap_bytes": "usage.memory_swap_bytes",
        "paddock_container_memory_peak_bytes": "usage.memory_peak_bytes",
        "paddock_container_memory_major_page_faults_total": "usage.memory_major_faults",
        "paddock_container_memory_limit_hits_total": "usage.memory_limit_hits",
        "paddock_container_oom_kills_total": "usage.oom_kills",
        "paddock_container_spec_memory_limit_bytes": "usage.memory_limit_bytes",
        "paddock_container_spec_memory_swap_limit_bytes": "usage.memory_swap_limit_bytes",
        "paddock_container_fs_reads_bytes_total": "usage.fs_read_bytes",
        "paddock_container_fs_writes_bytes_total": "usage.fs_write_bytes",
        "paddock_container_fs_reads_total": "usage.fs_reads",
        "paddock_container_fs_writes_total": "usage.fs_writes",
        "paddock_container_pressure_cpu_waiting_seconds_total": "usage.cpu_waiting_seconds",
        "paddock_container_pressure_cpu_stalled_seconds_total": "usage.cpu_stalled_seconds",
        "paddock_container_pressure_memory_waiting_seconds_total": "usage.memory_waiting_seconds",
        "paddock_container_pressure_memory_stalled_seconds_total": "usage.memory_stalled_seconds",
        "paddock_container_pressure_io_waiting_seconds_total": "usage.io_waiting_seconds",
        "paddock_container_pressure_io_stalled_seconds_total": "usage.io_stalled_seconds",
        "paddock_container_log_bytes": "usage.log_bytes",
        "paddock_container_pids": "usage.pids",
        "paddock_container_pids_peak": "usage.pids_peak",
        "paddock_container_pids_limit": "usage.pids_limit",
        "paddock_container_pids_limit_hits_total": "usage.pids_limit_hits",
        "paddock_container_restarts_total": "restarts",
        "paddock_container_fs_limit_bytes": "disk_limit_bytes",
    }
)
NETWORK_FIGURES: Mapping[str, str] = MappingProxyType(
    {
        "paddock_container_network_receive_bytes_total": "usage.network.receive_bytes",
        "paddock_container_network_transmit_bytes_total": "usage.network.transmit_bytes",
        "paddock_container_network_receive_packets_total": "usage.network.receive_packets",
        "paddock_container_network_transmit_packets_total": "usage.network.transmit_packets",
        "paddock_container_network_receive_errors_total": "usage.network.receive_errors",
        "paddock_container_network_transmit_errors_total": "usage.network.transmit_errors",
        "paddock_container_network_receive_packets_dropped_total": "usage.network.receive_dropped",
        "paddock_container_network_transmit_packets_dropped_total": "usage.network.transmit_dropped",
    }
)


class ContainerCollector:
    """Reads the usage of every running container of the last snapshot and builds fresh families.

    A container that can't be read is left out and counted. `detail` adds the families that are off by
    default.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot | None],
        usage: UsageReader,
        *,
        layers: Callable[[], Mapping[str, LayerUsage]] = dict,
        detail: bool = False,
    ) -> None:
        """`layers` returns measured sizes of writable layers by container id."""
        self._snapshot = snapshot
        self._usage, self._layers = usage, layers
        self._one_reader = Lock()  # two scrapes at once would only slow each other down
        names = {family.name for family in CONTAINERS if detail or not family.detail}
        self._figures = _getters(FIGURES, names)
        self._network_figures = _getters(NETWORK_FIGURES, names)
        self._detail = detail

    def describe(self) -> Iterable[Metric]:
        return [empty(family) for family in CONTAINERS]

    def collect(self) -> Iterator[Metric]:
        started_at = time.perf_counter()
        snapshot = self._snapshot()
        alive = snapshot.alive() if snapshot is not None else []
        with self._one_reader:
            usages = self._usage.read(alive)
        rows = list(_rows(snapshot, alive, usages)) if snapshot is not None else []
        yield from self._measurements(rows)
        if snapshot is not None:
            yield _info(rows, snapshot)
            if self._detail:
                health = [(row.labels, health_of(snapshot, row.container)) for row in rows]
                yield enum("paddock_container_health_status", "status", health)
        yield from _reading(snapshot, alive, usages)
        yield single("paddock_stats_scrape_duration_seconds", time.perf_counter() - started_at)

    def _measurements(self, rows: list[Row]) -> Iterator[Metric]:
        """Yield the families of what was measured of the containers."""
        yield from (_family(name, read, rows) for name, read in self._figures)
        networked = [row for row in rows if row.usage.network is not None]
        yield from (_family(name, read, networked) for name, read in self._network_figures)
        yield filled(
            "paddock_container_start_time_seconds",
            ((row.labels, row.container.started_at) for row in rows if row.container.started_at),
        )
        measured = self._layers()
        layers = [(row.labels, measured[row.container.id]) for row in rows if row.container.id in measured]
        measured_layers = [
            (labels, layer.used_bytes, layer.at) for labels, layer in layers if layer.used_bytes is not None
        ]
        yield filled(
            "paddock_container_fs_usage_bytes", ((labels, used_bytes) for labels, used_bytes, _ in measured_layers)
        )
        if self._detail:
            when = ((labels, at) for labels, _, at in measured_layers)
            yield filled("paddock_container_fs_usage_measured_timestamp_seconds", when)
            limits = ((row.labels, row.container.limits) for row in rows)
            shares = (
                (labels, container_limits.cpu_shares)
                for labels, container_limits in limits
                if container_limits is not None and container_limits.cpu_shares
            )
            yield filled("paddock_container_spec_cpu_shares", shares)


def _getters(figures: Mapping[str, str], names: set[str]) -> list[tuple[str, Callable[[Row], Any]]]:
    return [(name, attrgetter(path)) for name, path in figures.items() if name in names]


def _family(name: str, read: Callable[[Row], Any], rows: list[Row]) -> Metric:
    """Return the family of one figure."""
    lines = [f"{name}{row.labels.text} {number_text(value)}\n" for row in rows if (value := read(row)) is not None]
    return text_family(name, lines, lambda: [(row.labels, value) for row in rows if (value := read(row)) is not None])


def _rows(snapshot: Snapshot, alive: list[Container], usages: Mapping[str, Usage]) -> Iterator[Row]:
    for container in alive:
        usage = usages.get(container.id)
        if usage is None:
            continue
        instance = snapshot.instances.get(container.uid)
        labels = _labels(snapshot, container)
        restarts = instance.state.runs.restarts if instance else None
        is_sandbox = container.uid in snapshot.desired.sandboxes  # its reservation includes its volumes
        disk = (
            limit_of(snapshot.desired, container.uid) if is_sandbox else instance.reserves.disk_bytes if instance else 0
        )
        yield Row(labels, container, usage, restarts, disk or None)


def _labels(snapshot: Snapshot, container: Container) -> Labels:
    """Return the identity labels. `sandbox` is empty for a pool member."""
    sandbox = snapshot.desired.sandboxes.get(container.uid)
    namespace = sandbox.obj.namespace if sandbox else snapshot.instances[container.uid].namespace
    name = sandbox.obj.name if sandbox else ""
    return Labels({"namespace": namespace, "sandbox": name, "container": container.name})


def _template(snapshot: Snapshot, uid: str) -> Template | None:
    sandbox = snapshot.desired.sandboxes.get(uid)
    if sandbox is None:
        return snapshot.desired.pools[snapshot.instances[uid].parent_uid].template
    return at_own_level(sandbox.spec, sandbox.template) if sandbox.template else None


def _info(rows: list[Row], snapshot: Snapshot) -> Metric:
    """Return the info family, to join on."""
    default_runtime = snapshot.observed.facts.default_runtime

    def labels(row: Row) -> Labels:
        container, template = row.container, _template(snapshot, row.container.uid)
        return Labels(
            {
                **row.labels,
                "container_id": container.id,
                "image": container.image,
                "image_id": container.image_id,
                "runtime": container.runtime or default_runtime,
                "network": ",".join(container.networks),
                "security_level": template.security_level if template else "",
                "pool": snapshot.pool_of(container.uid),
            }
        )

    return filled("paddock_container_info", ((labels(row), 1) for row in rows))


def _reading(snapshot: Snapshot | None, alive: list[Container], usages: Mapping[str, Usage]) -> Iterator[Metric]:
    """Yield the numbers of containers by source of usage, and of failures."""
    read = dict.fromkeys(SOURCES, 0)
    for usage in usages.values():
        read[usage.source] = read.get(usage.source, 0) + 1
    missed = dict.fromkeys(SOURCES, 0)
    missed[_source(snapshot)] = sum(container.id not in usages for container in alive)
    yield filled("paddock_stats_containers", (({"source": source}, count) for source, count in read.items()))
    yield filled("paddock_stats_scrape_errors", (({"source": source}, count) for source, count in missed.items()))


def _source(snapshot: Snapshot | None) -> str:
    """Return the usage source of this host, for containers that were not read."""
    return "cgroup1" if snapshot is not None and snapshot.observed.facts.cgroup_version == "1" else "cgroup2"
