"""Limits in force against the desired ones."""

from collections.abc import Iterator

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.runtime.container import Limits

# The kernel rounds a memory limit down to whole pages; 64 KiB is the largest page of a supported architecture.
PAGE_BYTES = 64 << 10


# What the engine takes shares to be when nobody said anything.
DEFAULT_SHARES = 1024


def limit_differences(desired: Limits, observed: Limits) -> Iterator[tuple[str, str, str]]:
    """Yield (field, found, wanted) for each limit that is not in force."""
    if desired.cpu_millicores != observed.cpu_millicores:
        yield "cpu", format_cpu(observed.cpu_millicores), format_cpu(desired.cpu_millicores)
    if not 0 <= desired.memory_bytes - observed.memory_bytes < PAGE_BYTES:
        yield "memory", format_bytes(observed.memory_bytes), format_bytes(desired.memory_bytes)
    if desired.pids != observed.pids:
        yield "pids", str(observed.pids), str(desired.pids)
    if shares_differ(desired, observed):
        yield "cpuShares", str(observed.cpu_shares), str(desired.cpu_shares or DEFAULT_SHARES)


def shares_differ(desired: Limits, observed: Limits) -> bool:
    """Return True if the CPU shares are not the desired ones; unset is the engine's default."""
    return (observed.cpu_shares or DEFAULT_SHARES) != (desired.cpu_shares or DEFAULT_SHARES)
