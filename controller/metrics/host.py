"""Facts of the engine and its host, from the last snapshot (sections D and F of the catalogue)."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric

from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.snapshot import Snapshot
from controller.metrics.catalogue import HOST
from controller.metrics.catalogue.host import CONTAINER_STATES
from controller.metrics.families import empty, filled, single
from controller.metrics.render import Labels


class HostCollector:
    """Collector of host facts. While the engine is unreachable, facts stay; counts of containers do not."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        return [empty(family) for family in HOST]

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        blind = snapshot is None or bool(snapshot.observed.blind)
        yield single("paddock_docker_up", float(not blind))
        if snapshot is None:
            return
        facts, ability = snapshot.observed.facts, snapshot.host.hibernation
        if ability.swap_bytes:
            yield single("paddock_host_swap_size_bytes", ability.swap_bytes)
            yield single("paddock_host_swap_free_bytes", ability.swap_free_bytes)
        if facts.engine_version:
            yield from _engine(facts)
            yield from _docker_root(facts.root_dir)
        if not blind:
            yield _containers(snapshot)


def _engine(facts: HostFacts) -> Iterator[Metric]:
    labels = {
        "server_version": facts.engine_version,
        "api_version": facts.api_version,
        "storage_driver": facts.storage_driver,
        "cgroup_version": facts.cgroup_version,
        "cgroup_driver": facts.cgroup_driver,
        "default_runtime": facts.default_runtime,
    }
    yield filled("paddock_docker_info", [(labels, 1)])
    yield single("paddock_host_cpu_cores", facts.cpus)
    yield single("paddock_host_memory_bytes", facts.memory_bytes)


def _docker_root(path: str) -> Iterator[Metric]:
    """Yield the disk space of the engine's data; nothing for an engine on another host."""
    try:
        disk_stat = os.statvfs(path)
    except OSError:
        return
    yield single("paddock_host_docker_root_size_bytes", disk_stat.f_blocks * disk_stat.f_frsize)
    yield single("paddock_host_docker_root_avail_bytes", disk_stat.f_bavail * disk_stat.f_frsize)
    yield single("paddock_host_docker_root_inodes_free", disk_stat.f_favail)


def _containers(snapshot: Snapshot) -> Metric:
    """Return the number of our containers by state."""
    counts = Counter(str(container.state) for group in snapshot.observed.containers.values() for container in group)
    return filled(
        "paddock_docker_containers",
        ((Labels({"state": state, "managed": "true"}), counts[state]) for state in CONTAINER_STATES),
    )
