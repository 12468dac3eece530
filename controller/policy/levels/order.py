"""Partial order of container configs by permissions. `wider` is empty if the first permits nothing more.

It proves that a spec only narrows its level: rendering makes configs, this compares them, and a property test checks
all specs.
"""

from collections.abc import Iterator

from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID
from controller.policy.levels.levels import PORTS
from controller.policy.levels.seccomp import WIDTH


def wider(config: ContainerConfig, bound: ContainerConfig) -> tuple[str, ...]:
    """Return the fields in which `config` permits its container more than `bound` does.

    A limit of 0 in `bound` is no bound. Fields without an order (command, environment, names, images) are not compared.
    """
    return tuple(_wider(config, bound))


def _wider(config: ContainerConfig, bound: ContainerConfig) -> Iterator[str]:
    if config.network_mode != bound.network_mode and _network(config) >= _network(bound):
        yield "network_mode"
    if config.joins_peers and not bound.joins_peers:
        yield "joins_peers"
    if bound.read_only_root and not config.read_only_root:
        yield "read_only_root"
    if _reach(config.user) > _reach(bound.user):
        yield "user"
    if not set(config.capabilities) <= set(bound.capabilities):
        yield "capabilities"
    if not set(bound.security_options) <= set(config.security_options):
        yield "security_options"
    if _calls(config.seccomp) > _calls(bound.seccomp):
        yield "seccomp"
    if not set(bound.sysctls) <= set(config.sysctls) <= {*bound.sysctls, *PORTS}:
        yield "sysctls"
    if config.runtime != bound.runtime:
        yield "runtime"
    yield from _resources(config, bound)


def _resources(config: ContainerConfig, bound: ContainerConfig) -> Iterator[str]:
    if not _within(config.limits, bound.limits):
        yield "limits"
    noexec = {folder.path for folder in bound.tmpfs if folder.noexec}
    if any(folder.size_bytes <= 0 or (folder.path in noexec and not folder.noexec) for folder in config.tmpfs):
        yield "tmpfs"
    # Like other folders in memory, it may be as large as the memory in which it counts.
    if not 0 < config.shm_bytes <= max(bound.shm_bytes, config.limits.memory_bytes):
        yield "shm_bytes"
    for name in ("nofile", "log_max_bytes", "log_files"):
        if getattr(config, name) > getattr(bound, name):
            yield name
    if _writes_to_the_host(config) and not _writes_to_the_host(bound):
        yield "mounts"
    if config.oom_score_adjust < bound.oom_score_adjust:
        yield "oom_score_adjust"


def _writes_to_the_host(config: ContainerConfig) -> bool:
    return any(mount.kind == "host" and not mount.read_only for mount in config.mounts)


def _within(config: Limits, bound: Limits) -> bool:
    names = ("cpu_millicores", "memory_bytes", "pids")
    is_limited = all(getattr(config, name) > 0 for name in names)
    return is_limited and all(
        getattr(config, name) <= (getattr(bound, name) or getattr(config, name)) for name in names
    )


def _reach(user: str) -> int:
    """Return 0: ids that no user of the host has; 1: ids that one may have; 2: root, or the image's user."""
    ids = [int(number) if number.isdigit() else 0 for number in (user.partition(":")[0], user.partition(":")[2])]
    return 2 if min(ids) == 0 else int(min(ids) < LOWEST_FREE_ID)


def _network(config: ContainerConfig) -> int:
    """Return the rank of a network: none; sealed; the Internet; the local network; any other."""
    ways = ("none", "pdx", "pdp", "pdl")
    return next((rank for rank, way in enumerate(ways) if config.network_mode.startswith(way)), len(ways))


def _calls(seccomp: str) -> int:
    return WIDTH.get(seccomp, len(WIDTH))
