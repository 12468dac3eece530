"""Memory of a container, from its cgroup files."""

from controller.engine.kernel.cgroups import Cgroups, Unreadable
from controller.engine.usage.handles import Figures, Handles, number_of, open_folders
from controller.engine.usage.limits import limit_of


def memory_figures(handles: Handles) -> Figures:
    """Return use, limits and faults of memory. Raises OSError, ValueError or KeyError."""
    return _memory1(handles) if handles.versions["memory"] == 1 else _memory2(handles)


def working_set_bytes(cgroups: Cgroups, container_id: str, pid: int) -> int:
    """Return the memory in use without the inactive file cache. Raises Unreadable."""
    handles = open_folders(cgroups, container_id, pid)
    try:
        return int(memory_figures(handles)["memory_working_set_bytes"] or 0)
    except (OSError, ValueError, KeyError) as error:
        raise Unreadable(f"the memory of container {container_id[:12]} can't be read: {error}") from error
    finally:
        handles.close()


def _memory1(handles: Handles) -> Figures:
    stat = handles.pairs("memory", "memory.stat")
    usage = handles.number("memory", "memory.usage_in_bytes")
    limit = handles.limit("memory", "memory.limit_in_bytes")
    both = _optional_limit(handles, "memory.memsw.limit_in_bytes")
    failed_both = number_of(handles.optional("memory", "memory.memsw.failcnt")) or 0
    return {
        "memory_usage_bytes": usage,
        "memory_working_set_bytes": max(0, usage - int(stat[b"total_inactive_file"])),
        "memory_rss_bytes": int(stat[b"total_rss"]),
        "memory_cache_bytes": int(stat[b"total_cache"]),
        "memory_kernel_bytes": number_of(handles.optional("memory", "memory.kmem.usage_in_bytes")),
        "memory_swap_bytes": number_of(stat.get(b"total_swap")),
        "memory_peak_bytes": handles.number("memory", "memory.max_usage_in_bytes"),
        "memory_major_faults": int(stat[b"total_pgmajfault"]),
        "memory_limit_hits": handles.number("memory", "memory.failcnt") + failed_both,
        "oom_kills": number_of(handles.pairs("memory", "memory.oom_control").get(b"oom_kill")),
        "memory_limit_bytes": limit,
        "memory_swap_limit_bytes": None if both is None or limit is None else max(0, both - limit),
    }


def _memory2(handles: Handles) -> Figures:
    stat, events = handles.pairs("memory", "memory.stat"), handles.pairs("memory", "memory.events")
    usage = handles.number("memory", "memory.current")
    return {
        "memory_usage_bytes": usage,
        "memory_working_set_bytes": max(0, usage - int(stat[b"inactive_file"])),
        "memory_rss_bytes": int(stat[b"anon"]),
        "memory_cache_bytes": int(stat[b"file"]),
        "memory_kernel_bytes": number_of(stat.get(b"kernel")),
        "memory_swap_bytes": number_of(handles.optional("memory", "memory.swap.current")),
        "memory_peak_bytes": number_of(handles.optional("memory", "memory.peak")),
        "memory_major_faults": int(stat[b"pgmajfault"]),
        "memory_limit_hits": int(events[b"max"]),
        "oom_kills": int(events[b"oom_kill"]),
        "memory_limit_bytes": handles.limit("memory", "memory.max"),
        "memory_swap_limit_bytes": _optional_limit(handles, "memory.swap.max"),
    }


def _optional_limit(handles: Handles, name: str) -> int | None:
    data = handles.optional("memory", name)
    return None if data is None else limit_of(data.decode())
