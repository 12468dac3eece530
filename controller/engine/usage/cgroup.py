"""Usage of containers, read from their cgroup files and network namespaces; never from Docker.

Folders are held open (O_PATH), keyed by (container id, start time). A file below a held folder belongs to that
container even if its pid was reused, and short paths halve the time of a reading. `/proc/<pid>/net/dev` is never kept
open: that would pin the network namespace.
"""

import contextlib
import os
import resource
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.engine.kernel.cgroups import Cgroups, Folder, Unreadable, folder_of, pairs, read_at, read_figure_at
from controller.engine.usage.limits import limit_of, parse_cpu_max
from controller.engine.usage.pressure_stall import read_stalls
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import NetworkUsage, Usage

_CONTROLLERS = ("cpu", "cpuacct", "memory", "blkio", "pids")
_STALLS = "unified"
_LIVE = (State.RUNNING, State.PAUSED)
_NO_OWN_NETWORK = (("none",), ("host",), ())
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# Share of the process's file descriptors for held folders; beyond it they are opened for each reading.
_SHARE_OF_HANDLES = 0.5
# More than this many rotated log files are not counted.
_ROTATED = 9


@dataclass(frozen=True, slots=True)
class Held:
    """Open folders of one run of a container. `versions` has the cgroup version of each controller."""

    process: int
    folders: Mapping[str, int]
    versions: Mapping[str, int]

    def close(self) -> None:
        for each in {self.process, *self.folders.values()}:
            with contextlib.suppress(OSError):
                os.close(each)

    def text(self, controller: str, name: str) -> str:
        return read_figure_at(self.folders[controller], name)

    def number(self, controller: str, name: str) -> int:
        return int(self.text(controller, name))

    def optional(self, controller: str, name: str) -> str | None:
        """Read a file that not every kernel has; None if missing."""
        try:
            return self.text(controller, name)
        except FileNotFoundError:
            return None


class CgroupUsage:
    """ports.UsageReader. Thread-safe: one reading at a time. `stalls`: read pressure stall information, too."""

    def __init__(self, cgroups: Cgroups | None = None, *, stalls: bool = False) -> None:
        self._cgroups, self._stalls = cgroups or Cgroups(), stalls
        self._lock = threading.Lock()
        self._held: dict[tuple[str, float], Held] = {}

    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        """Return the usage of running containers by id. A container that can't be read completely is left out."""
        with self._lock:
            live = [each for each in containers if each.state in _LIVE and each.pid]
            self._forget_all_but({_key(each) for each in live})
            found = {}
            for container in live:
                with contextlib.suppress(Unreadable):
                    found[container.id] = self._read(container)
            return found

    def close(self) -> None:
        """Close every folder."""
        with self._lock:
            self._forget_all_but(set())

    def _read(self, container: Container) -> Usage:
        key = _key(container)
        held = self._held.get(key)
        opened = held is None
        if held is None:
            held = open_folders(self._cgroups, container.id, container.pid, stalls=self._stalls)
        try:
            usage = usage_of(held, with_network=container.networks not in _NO_OWN_NETWORK, log_path=container.log_path)
        except (OSError, ValueError, KeyError) as error:
            self._held.pop(key, None)
            held.close()
            raise Unreadable(f"the usage of {container.name} can't be read: {error}") from error
        if opened:
            self._keep(key, held)
        return usage

    def _keep(self, key: tuple[str, float], held: Held) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if (len(self._held) + 1) * (len(_CONTROLLERS) + 1 + self._stalls) > soft * _SHARE_OF_HANDLES:
            held.close()
        else:
            self._held[key] = held

    def _forget_all_but(self, kept: set[tuple[str, float]]) -> None:
        for key in [each for each in self._held if each not in kept]:
            self._held.pop(key).close()
        self._cgroups.keep_only({container_id for container_id, _ in kept})


def _key(container: Container) -> tuple[str, float]:
    return container.id, container.started_at


def working_set_bytes(cgroups: Cgroups, container_id: str, pid: int) -> int:
    """Return the memory in use without the inactive file cache. Raises Unreadable."""
    held = open_folders(cgroups, container_id, pid)
    try:
        memory = _memory1(held) if held.versions["memory"] == 1 else _memory2(held)
        return int(memory["memory_working_set_bytes"] or 0)
    except (OSError, ValueError, KeyError) as error:
        raise Unreadable(f"the memory of container {container_id[:12]} can't be read: {error}") from error
    finally:
        held.close()


def open_folders(cgroups: Cgroups, container_id: str, pid: int, *, stalls: bool = False) -> Held:
    """Open the cgroup folders of a container's process; with `stalls`, the v2 tree's, too. Raises Unreadable."""
    handles: dict[str, int] = {}
    try:
        handles["/"] = _open_folder(str(cgroups.proc / str(pid)))
        # Below the held /proc folder: fails if the pid was reused.
        folders = cgroups.folders(read_at(handles["/"], "cgroup"), container_id)
        chosen = {each: folder_of(folders, each) for each in _CONTROLLERS}
        if stalls and _STALLS in folders:
            chosen[_STALLS] = folders[_STALLS]
        for folder in set(chosen.values()):
            handles[folder.path] = _open_folder(folder.path)
        return _held(handles, chosen)
    except (OSError, ValueError, Unreadable) as error:
        for each in handles.values():
            os.close(each)
        if isinstance(error, Unreadable):
            raise
        cgroups.forget_mounts()
        raise Unreadable(f"the cgroups of container {container_id[:12]} can't be opened: {error}") from error


def _held(handles: Mapping[str, int], chosen: Mapping[str, Folder]) -> Held:
    return Held(
        handles["/"],
        {name: handles[folder.path] for name, folder in chosen.items()},
        {name: folder.version for name, folder in chosen.items()},
    )


def _open_folder(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def usage_of(held: Held, *, with_network: bool, log_path: str = "") -> Usage:
    """Read all values of one container. Raises OSError, ValueError or KeyError if one can't be read."""
    v1 = {name for name, version in held.versions.items() if version == 1}
    figures: dict[str, float | None] = {
        **(_cpu1(held) if "cpuacct" in v1 else _cpu2(held)),
        **(_quota1(held) if "cpu" in v1 else _quota2(held)),
        **(_memory1(held) if "memory" in v1 else _memory2(held)),
        **(_disk1(held) if "blkio" in v1 else _disk2(held)),
        **_pids(held),
        **(read_stalls(lambda name: held.text(_STALLS, name)) if _STALLS in held.folders else {}),
        "log_bytes": log_bytes(log_path),
    }
    network = parse_net_dev(read_at(held.process, "net/dev")) if with_network else None
    values: dict[str, object] = {"source": "cgroup1" if "memory" in v1 else "cgroup2", **figures, "network": network}
    return Usage(**values)  # type: ignore[arg-type]  # one dict per group of files, each with the fields it fills


Figures = dict[str, float | None]


def _cpu1(held: Held) -> Figures:
    # cpuacct.usage_user counts double on some kernels; cpuacct.stat is coarse (10 ms) but right.
    ticks = dict(pairs(held.text("cpuacct", "cpuacct.stat")))
    return {
        "cpu_usage_seconds": held.number("cpuacct", "cpuacct.usage") / 1e9,
        "cpu_user_seconds": ticks["user"] / _TICKS_A_SECOND,
        "cpu_system_seconds": ticks["system"] / _TICKS_A_SECOND,
    }


def _cpu2(held: Held) -> Figures:
    stat = dict(pairs(held.text("cpuacct", "cpu.stat")))
    return {
        "cpu_usage_seconds": stat["usage_usec"] / 1e6,
        "cpu_user_seconds": stat["user_usec"] / 1e6,
        "cpu_system_seconds": stat["system_usec"] / 1e6,
    }


def _quota1(held: Held) -> Figures:
    quota, period = held.number("cpu", "cpu.cfs_quota_us"), held.number("cpu", "cpu.cfs_period_us")
    if quota <= 0:
        return {}
    stat = dict(pairs(held.text("cpu", "cpu.stat")))
    return {
        **_throttling(stat),
        "cpu_throttled_seconds": stat["throttled_time"] / 1e9,
        "cpu_limit_cores": quota / period,
    }


def _quota2(held: Held) -> Figures:
    quota, period = parse_cpu_max(held.text("cpu", "cpu.max"))
    if quota is None:
        return {}
    stat = dict(pairs(held.text("cpu", "cpu.stat")))
    return {
        **_throttling(stat),
        "cpu_throttled_seconds": stat["throttled_usec"] / 1e6,
        "cpu_limit_cores": quota / period,
    }


def _throttling(stat: Mapping[str, int]) -> Figures:
    return {"cpu_periods": stat["nr_periods"], "cpu_throttled_periods": stat["nr_throttled"]}


def _memory1(held: Held) -> Figures:
    stat = dict(pairs(held.text("memory", "memory.stat")))
    usage = held.number("memory", "memory.usage_in_bytes")
    limit = limit_of(held.text("memory", "memory.limit_in_bytes"))
    both = _optional_limit(held, "memory.memsw.limit_in_bytes")
    failed_both = _number(held.optional("memory", "memory.memsw.failcnt")) or 0
    return {
        "memory_usage_bytes": usage,
        "memory_working_set_bytes": max(0, usage - stat["total_inactive_file"]),
        "memory_rss_bytes": stat["total_rss"],
        "memory_cache_bytes": stat["total_cache"],
        "memory_kernel_bytes": _number(held.optional("memory", "memory.kmem.usage_in_bytes")),
        "memory_swap_bytes": stat.get("total_swap"),
        "memory_peak_bytes": held.number("memory", "memory.max_usage_in_bytes"),
        "memory_major_faults": stat["total_pgmajfault"],
        "memory_limit_hits": held.number("memory", "memory.failcnt") + failed_both,
        "oom_kills": dict(pairs(held.text("memory", "memory.oom_control"))).get("oom_kill"),
        "memory_limit_bytes": limit,
        "memory_swap_limit_bytes": None if both is None or limit is None else max(0, both - limit),
    }


def _memory2(held: Held) -> Figures:
    stat = dict(pairs(held.text("memory", "memory.stat")))
    events = dict(pairs(held.text("memory", "memory.events")))
    usage = held.number("memory", "memory.current")
    return {
        "memory_usage_bytes": usage,
        "memory_working_set_bytes": max(0, usage - stat["inactive_file"]),
        "memory_rss_bytes": stat["anon"],
        "memory_cache_bytes": stat["file"],
        "memory_kernel_bytes": stat.get("kernel"),
        "memory_swap_bytes": _number(held.optional("memory", "memory.swap.current")),
        "memory_peak_bytes": _number(held.optional("memory", "memory.peak")),
        "memory_major_faults": stat["pgmajfault"],
        "memory_limit_hits": events["max"],
        "oom_kills": events["oom_kill"],
        "memory_limit_bytes": limit_of(held.text("memory", "memory.max")),
        "memory_swap_limit_bytes": _optional_limit(held, "memory.swap.max"),
    }


def _optional_limit(held: Held, name: str) -> int | None:
    text = held.optional("memory", name)
    return None if text is None else limit_of(text)


def _disk1(held: Held) -> Figures:
    """Return the disk values; cgroup v1 does not count buffered writes."""
    moved = _by_word(held.optional("blkio", "blkio.throttle.io_service_bytes_recursive"))
    calls = _by_word(held.optional("blkio", "blkio.throttle.io_serviced_recursive"))
    return {
        "fs_read_bytes": moved.get("read"),
        "fs_write_bytes": moved.get("write"),
        "fs_reads": calls.get("read"),
        "fs_writes": calls.get("write"),
    }


def _disk2(held: Held) -> Figures:
    stat = _by_key(held.optional("blkio", "io.stat"))
    return {
        "fs_read_bytes": stat.get("rbytes"),
        "fs_write_bytes": stat.get("wbytes"),
        "fs_reads": stat.get("rios"),
        "fs_writes": stat.get("wios"),
    }


def _by_word(text: str | None) -> Mapping[str, int]:
    """Sum v1's `8:0 Read 4096` lines over devices; empty without the file or any device.

    Kernels from 6.10 on count nothing until a device has a limit; `Total 0` is no value then.
    """
    if text is None or ":" not in text:
        return {}
    sums = {"read": 0, "write": 0}
    for fields in map(str.split, text.splitlines()):
        if len(fields) == 3 and fields[1].lower() in sums:
            sums[fields[1].lower()] += int(fields[2])
    return sums


def _by_key(text: str | None) -> Mapping[str, int]:
    """Sum v2's `8:0 rbytes=4096 wbytes=0 ...` lines over devices; empty without the file."""
    if text is None:
        return {}
    sums = {"rbytes": 0, "wbytes": 0, "rios": 0, "wios": 0}
    for field in text.split():
        name, equals, value = field.partition("=")
        if equals and name in sums:
            sums[name] += int(value)
    return sums


def _pids(held: Held) -> Figures:
    events = dict(pairs(held.optional("pids", "pids.events") or ""))
    return {
        "pids": held.number("pids", "pids.current"),
        "pids_peak": _number(held.optional("pids", "pids.peak")),
        "pids_limit": limit_of(held.text("pids", "pids.max")),
        "pids_limit_hits": events.get("max"),
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def parse_net_dev(text: str) -> NetworkUsage:
    """Sum the counters of /proc/<pid>/net/dev over all interfaces but lo."""
    sums = [0] * 16
    for line in text.splitlines():
        name, colon, counters = line.partition(":")
        if colon and name.strip() != "lo":
            sums = [total + int(each) for total, each in zip(sums, counters.split(), strict=True)]
    return NetworkUsage(
        receive_bytes=sums[0],
        receive_packets=sums[1],
        receive_errors=sums[2],
        receive_dropped=sums[3],
        transmit_bytes=sums[8],
        transmit_packets=sums[9],
        transmit_errors=sums[10],
        transmit_dropped=sums[11],
    )


def log_bytes(path: str) -> int | None:
    """Return the size of a container's log with its rotated files; None if missing or unreadable."""
    if not path:
        return None
    try:
        size = os.stat(path).st_size
    except OSError:
        return None
    for number in range(1, _ROTATED + 1):
        try:
            size += os.stat(f"{path}.{number}").st_size
        except OSError:
            break
    return size
