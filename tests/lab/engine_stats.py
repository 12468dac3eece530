"""Usage from the engine's own stats of a container (GET .../stats): a witness for the values of the cgroup files.

Values that the engine lacks, or counts differently from the files, are left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import NetworkUsage, Usage

SOURCE = "docker_api"
_NO_OWN_NETWORK = (("none",), ("host",), ())


def usage_from_stats(stats: Mapping[str, Any], container: Container) -> Usage | None:
    """Return the usage in one answer; None for a stopped container (the engine answers with zeros then)."""
    memory, cpu = stats.get("memory_stats") or {}, stats.get("cpu_stats") or {}
    pids, cpu_usage = stats.get("pids_stats") or {}, (cpu.get("cpu_usage") or {})
    if not memory.get("usage") or not cpu_usage.get("total_usage"):
        return None
    values: dict[str, Any] = {
        "source": SOURCE,
        "cpu_usage_seconds": cpu_usage["total_usage"] / 1e9,
        "cpu_user_seconds": cpu_usage.get("usage_in_usermode", 0) / 1e9,
        "cpu_system_seconds": cpu_usage.get("usage_in_kernelmode", 0) / 1e9,
        "pids": int(pids.get("current") or 0),
        **_memory(memory),
        **_limits(container, cpu.get("throttling_data") or {}),
        **_disk(stats.get("blkio_stats") or {}),
        "network": None if container.networks in _NO_OWN_NETWORK else _network(stats.get("networks") or {}),
    }
    return Usage(**values)


def _memory(memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory values: v1 has `total_...` for the whole tree, v2 other names. Limit hits differ: left out."""
    stat, usage = memory.get("stats") or {}, int(memory["usage"])
    v1 = "total_rss" in stat
    inactive = stat["total_inactive_file"] if v1 else stat["inactive_file"]
    return {
        "memory_usage_bytes": usage,
        "memory_working_set_bytes": max(0, usage - inactive),
        "memory_rss_bytes": stat["total_rss"] if v1 else stat["anon"],
        "memory_cache_bytes": stat["total_cache"] if v1 else stat["file"],
        "memory_swap_bytes": stat.get("total_swap"),
        "memory_peak_bytes": memory.get("max_usage"),
        "memory_major_faults": stat["total_pgmajfault"] if v1 else stat["pgmajfault"],
    }


def _limits(container: Container, throttled: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits as inspected: the stats report a missing one as the host's memory, or as 0."""
    limits = container.limits
    if limits is None:
        return {}
    document: dict[str, Any] = {
        "memory_limit_bytes": limits.memory_bytes or None,
        "pids_limit": limits.pids or None,
    }
    if limits.cpu_millicores:
        document |= {
            "cpu_limit_cores": limits.cpu_millicores / 1000,
            "cpu_periods": throttled.get("periods"),
            "cpu_throttled_periods": throttled.get("throttled_periods"),
            "cpu_throttled_seconds": throttled.get("throttled_time", 0) / 1e9,
        }
    return document


def _disk(blkio: Mapping[str, Any]) -> dict[str, Any]:
    operation, calls = (
        _by_operation(blkio.get("io_service_bytes_recursive")),
        _by_operation(blkio.get("io_serviced_recursive")),
    )
    return {
        "fs_read_bytes": operation.get("read"),
        "fs_write_bytes": operation.get("write"),
        "fs_reads": calls.get("read"),
        "fs_writes": calls.get("write"),
    }


def _by_operation(rows: Iterable[Mapping[str, Any]] | None) -> dict[str, int]:
    """Sum over devices; empty without any row, as for the files (engine/usage/disk.py)."""
    if not rows:
        return {}
    sums = {"read": 0, "write": 0}
    for row in rows:
        name = str(row.get("op", "")).lower()
        if name in sums:
            sums[name] += int(row.get("value") or 0)
    return sums


def _network(networks: Mapping[str, Mapping[str, int]]) -> NetworkUsage:
    def total(name: str) -> int:
        return sum(int(network.get(name) or 0) for network in networks.values())

    return NetworkUsage(
        receive_bytes=total("rx_bytes"),
        transmit_bytes=total("tx_bytes"),
        receive_packets=total("rx_packets"),
        transmit_packets=total("tx_packets"),
        receive_errors=total("rx_errors"),
        transmit_errors=total("tx_errors"),
        receive_dropped=total("rx_dropped"),
        transmit_dropped=total("tx_dropped"),
    )
