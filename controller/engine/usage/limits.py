"""Limits in force, read from the cgroup files: the kernel's, not the engine's configuration."""

import math
from dataclasses import dataclass

from controller.engine.kernel.cgroups import Cgroups, Folder, OutsideCgroup, Unreadable, folder_of, is_outside, read_at
from controller.kinds.runtime.container import Limits

# cgroup v1 writes "no limit" as the largest page-aligned number.
UNLIMITED_BYTES = 1 << 62
_DEFAULT_SHARES = 1024
_CONTROLLERS = ("cpu", "memory", "pids")
_PAGE_MASK = ~0xFFF


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of the cgroup files; None: no limit. `cpu_weight` is v1's shares or v2's weight, depending on `version`.

    `swap_bytes` is -1 for no limit, None if the kernel does not account for swap.
    """

    memory_bytes: int | None
    pids: int | None
    cpu_quota_us: int | None
    cpu_period_us: int
    cpu_weight: int
    version: int
    swap_bytes: int | None = None


def read_limits(cgroups: Cgroups, container_id: str, pid: int) -> Reading:
    """Read the limits in force of a container. Raises Unreadable; OutsideCgroup if none are."""
    try:
        paths = read_at(None, f"{cgroups.proc}/{pid}/cgroup")
        folders = cgroups.folders(paths, container_id)
        return _reading(folder_of(folders, "cpu"), memory=folder_of(folders, "memory"), pids=folder_of(folders, "pids"))
    except (OSError, ValueError, Unreadable) as error:
        if not isinstance(error, Unreadable):
            cgroups.forget_mounts()
        outside = is_outside(pid, container_id, _CONTROLLERS, cgroups.proc)
        kind = OutsideCgroup if outside else Unreadable
        raise kind(f"the limits of container {container_id[:12]} can't be read: {error}") from error


def _reading(cpu: Folder, *, memory: Folder, pids: Folder) -> Reading:
    quota, period = _cpu_quota(cpu)
    memory_bytes = limit_of(_read(memory, "memory.limit_in_bytes" if memory.version == 1 else "memory.max"))
    return Reading(
        memory_bytes=memory_bytes,
        pids=limit_of(_read(pids, "pids.max")),
        cpu_quota_us=quota,
        cpu_period_us=period,
        cpu_weight=int(_read(cpu, "cpu.shares" if cpu.version == 1 else "cpu.weight")),
        version=cpu.version,
        swap_bytes=_swap(memory, memory_bytes),
    )


def _swap(memory: Folder, memory_bytes: int | None) -> int | None:
    """Return the swap limit: v2 has one, v1 limits memory and swap together."""
    name = "memory.memsw.limit_in_bytes" if memory.version == 1 else "memory.swap.max"
    try:
        limit = limit_of(_read(memory, name))
    except FileNotFoundError:
        return None
    if limit is None or memory.version == 2:
        return -1 if limit is None else limit
    return limit - (memory_bytes or limit)


def _cpu_quota(cpu: Folder) -> tuple[int | None, int]:
    if cpu.version == 2:
        return parse_cpu_max(_read(cpu, "cpu.max"))
    quota = int(_read(cpu, "cpu.cfs_quota_us"))
    return (quota if quota > 0 else None), int(_read(cpu, "cpu.cfs_period_us"))


def parse_cpu_max(text: str) -> tuple[int | None, int]:
    """Parse a v2 cpu.max (`max 100000` or `50000 100000`) as (quota, period) in microseconds."""
    quota, period = text.split()
    return (None if quota == "max" else int(quota)), int(period)


def limit_of(text: str) -> int | None:
    """Parse a limit file; None for `max` and for v1's huge number."""
    word = text.strip()
    value = UNLIMITED_BYTES if word == "max" else int(word)
    return value if value < UNLIMITED_BYTES else None


def _read(folder: Folder, name: str) -> str:
    return read_at(None, f"{folder.path}/{name}")


def in_force(configured: Limits, reading: Reading) -> Limits:
    """Return the reading as Limits, 0 for no limit.

    The kernel rounds: memory down to whole pages, shares to v2's coarser weights. Where the reading equals the rounded
    configuration, the configured value is returned, so that rounding never looks like drift.
    """
    return Limits(
        cpu_millicores=_millicores(reading),
        memory_bytes=_memory(configured.memory_bytes, reading.memory_bytes),
        pids=reading.pids or 0,
        cpu_shares=_shares(configured.cpu_shares, reading),
    )


def _millicores(reading: Reading) -> int:
    if reading.cpu_quota_us is None:
        return 0
    return round(reading.cpu_quota_us * 1000 / reading.cpu_period_us)


def _memory(configured: int, limit: int | None) -> int:
    if limit is None:
        return 0
    return configured if configured & _PAGE_MASK == limit else limit


def _shares(configured: int, reading: Reading) -> int:
    expected = configured or _DEFAULT_SHARES
    if reading.cpu_weight in ({expected} if reading.version == 1 else weights_of_shares(expected)):
        return configured
    return reading.cpu_weight if reading.version == 1 else shares_of_weight(reading.cpu_weight)


def weights_of_shares(shares: int) -> frozenset[int]:
    """Return the v2 weights to which runtimes convert v1 shares (2..262144 -> 1..10000).

    Older runc converts linearly, runc 1.3.2 by a curve that maps 1024 to the kernel's default of 100. Without shares a
    runtime keeps that default.
    """
    power = math.log2(max(shares, 2))
    straight = 1 + (max(shares, 2) - 2) * 9999 // 262142
    curved = math.ceil(10 ** ((power**2 + 125 * power) / 612 - 7 / 34))
    return frozenset({straight, curved, *({100} if shares == _DEFAULT_SHARES else ())})


def shares_of_weight(weight: int) -> int:
    """Convert a v2 weight to v1 shares (inverse of the linear conversion)."""
    return 2 + (weight - 1) * 262142 // 9999
