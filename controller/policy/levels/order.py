"""Partial order of container configs by permissions. `wider` is empty if the first permits nothing more.

It proves that a spec only narrows its level: rendering makes configs, this compares them, and a property test checks
all specs.
"""

from collections.abc import Iterator

from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID
from controller.policy.levels.levels import PORTS
from controller.policy.levels.seccomp import WIDTH


def wider(found: ContainerConfig, bound: ContainerConfig) -> tuple[str, ...]:
    """Return the fields in which `found` permits its container more than `bound` does.

    A limit of 0 in `bound` is no bound. Fields without an order (command, environment, names, images) are not compared.
    """
    return tuple(_wider(found, bound))


def _wider(found: ContainerConfig, bound: ContainerConfig) -> Iterator[str]:
    if found.network_mode != bound.network_mode and _network(found) >= _network(bound):
        yield "network_mode"
    if found.joins_peers and not bound.joins_peers:
        yield "joins_peers"
    if bound.read_only_root and not found.read_only_root:
        yield "read_only_root"
    if _reach(found.user) > _reach(bound.user):
        yield "user"
    if not set(found.capabilities) <= set(bound.capabilities):
        yield "capabilities"
    if not set(bound.security_options) <= set(found.security_options):
        yield "security_options"
    if _calls(found.seccomp) > _calls(bound.seccomp):
        yield "seccomp"
    if not set(bound.sysctls) <= set(found.sysctls) <= {*bound.sysctls, *PORTS}:
        yield "sysctls"
    if found.runtime != bound.runtime:
        yield "runtime"
    yield from _resources(found, bound)


def _resources(found: ContainerConfig, bound: ContainerConfig) -> Iterator[str]:
    if not _within(found.limits, bound.limits):
        yield "limits"
    noexec = {each.path for each in bound.tmpfs if each.noexec}
    if any(each.size_bytes <= 0 or (each.path in noexec and not each.noexec) for each in found.tmpfs):
        yield "tmpfs"
    # Like other folders in memory, it may be as large as the memory in which it counts.
    if not 0 < found.shm_bytes <= max(bound.shm_bytes, found.limits.memory_bytes):
        yield "shm_bytes"
    for name in ("nofile", "log_max_bytes", "log_files"):
        if getattr(found, name) > getattr(bound, name):
            yield name
    if _writes_to_the_host(found) and not _writes_to_the_host(bound):
        yield "mounts"
    if found.oom_score_adjust < bound.oom_score_adjust:
        yield "oom_score_adjust"


def _writes_to_the_host(config: ContainerConfig) -> bool:
    return any(each.kind == "host" and not each.read_only for each in config.mounts)


def _within(found: Limits, bound: Limits) -> bool:
    names = ("cpu_millicores", "memory_bytes", "pids")
    held = all(getattr(found, name) > 0 for name in names)
    return held and all(getattr(found, name) <= (getattr(bound, name) or getattr(found, name)) for name in names)


def _reach(user: str) -> int:
    """Return 0: ids that no user of the host has; 1: ids that one may have; 2: root, or the image's user."""
    ids = [int(each) if each.isdigit() else 0 for each in (user.partition(":")[0], user.partition(":")[2])]
    return 2 if min(ids) == 0 else int(min(ids) < LOWEST_FREE_ID)


def _network(config: ContainerConfig) -> int:
    """Return the rank of a network: none; sealed; the Internet; the local network; any other."""
    ways = ("none", "pdx", "pdp", "pdl")
    return next((rank for rank, way in enumerate(ways) if config.network_mode.startswith(way)), len(ways))


def _calls(seccomp: str) -> int:
    return WIDTH.get(seccomp, len(WIDTH))
