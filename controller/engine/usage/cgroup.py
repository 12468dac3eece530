"""Usage of containers, read from their cgroup files and network namespaces; never from Docker.

Files are held open between readings, keyed by (container id, start time): to open and close a file costs six times
what reading it does. A held file belongs to that container even if its pid was reused; once the cgroup is removed,
reading it fails. `/proc/<pid>/net/dev` is never kept open: that would pin the network namespace.
"""

import contextlib
import math
import os
import resource
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

from controller.engine.kernel.cgroups import Cgroups, Folder, Unreadable, folder_of, pairs, read_at, read_open
from controller.engine.usage.limits import limit_of, parse_cpu_max
from controller.engine.usage.pressure_stall import read_stalls
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import NetworkUsage, Usage

_CONTROLLERS = ("cpu", "cpuacct", "memory", "blkio", "pids")
_STALLS = "unified"
_LIVE = (State.RUNNING, State.PAUSED)
_NO_OWN_NETWORK = (("none",), ("host",), ())
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# File descriptors of the process that are left to connections and streams, at most a half; beyond the rest, files are
# opened for each reading. A container has about 26 with cgroup v1 and 17 with v2; the kernel needs 4 KiB for each.
_LEFT_HANDLES = 4096
# More than this many rotated log files are not counted.
_ROTATED = 9


@dataclass(frozen=True, slots=True)
class Handles:
    """Open folders of one run of a container, and the files in them that were read.

    `versions` has the cgroup version of each controller.
    """

    process: int
    folders: Mapping[str, int]
    versions: Mapping[str, int]
    files: dict[tuple[int, str], int] = field(default_factory=dict)

    def close(self) -> None:
        for handle in {self.process, *self.folders.values(), *self.files.values()}:
            with contextlib.suppress(OSError):
                os.close(handle)

    @property
    def handles(self) -> int:
        """Number of open files and folders."""
        return 1 + len(self.folders) + len(self.files)

    def data(self, controller: str, name: str) -> bytes:
        folder = self.folders[controller]
        handle = self.files.get((folder, name))
        if handle is None:
            handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            self.files[folder, name] = handle
        return read_open(handle)

    def number(self, controller: str, name: str) -> int:
        return int(self.data(controller, name))

    def pairs(self, controller: str, name: str) -> Mapping[bytes, bytes]:
        return pairs(self.data(controller, name))

    def limit(self, controller: str, name: str) -> int | None:
        return limit_of(self.data(controller, name).decode())

    def optional(self, controller: str, name: str) -> bytes | None:
        """Read a file that not every kernel has; None if missing."""
        try:
            return self.data(controller, name)
        except FileNotFoundError:
            return None


class CgroupUsage:
    """ports.UsageReader and CpuReader. Thread-safe: one reading at a time.

    `stalls`: read pressure stall information, too. `hold`: keep files open until the next reading, for a caller that
    reads the same containers again and again.
    """

    def __init__(self, cgroups: Cgroups | None = None, *, stalls: bool = False, hold: bool = True) -> None:
        self._cgroups, self._stalls, self._hold = cgroups or Cgroups(), stalls, hold
        self._lock = threading.Lock()
        self._held: dict[tuple[str, float], Handles] = {}
        self._handles = 0

    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        """Return the usage of running containers by id. A container that can't be read completely is left out."""
        with self._lock:
            live = [container for container in containers if container.state in _LIVE and container.pid]
            self._forget_all_but({_key(container) for container in live})
            self._handles = sum(handles.handles for handles in self._held.values())
            usages = {}
            for container in live:
                with contextlib.suppress(Unreadable):
                    usages[container.id] = self._read(container)
            return usages

    def cpu_seconds(self, containers: Iterable[Container]) -> Mapping[str, float]:
        """Return the CPU time of running containers by id, from one file each; nothing is kept for the next reading."""
        seconds = {}
        for container in containers:
            with contextlib.suppress(Unreadable):
                if container.state in _LIVE and container.pid:
                    seconds[container.id] = _cpu_seconds(self._cgroups, container)
        self._cgroups.keep_only(())
        return seconds

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            self._forget_all_but(set())

    def _read(self, container: Container) -> Usage:
        key = _key(container)
        handles = self._held.get(key)
        if handles is not None:
            try:
                return _usage_of(handles, container)
            except Unreadable:  # the cgroup was removed, or is another one since
                self._held.pop(key).close()
        handles = open_folders(self._cgroups, container.id, container.pid, stalls=self._stalls)
        keep = False
        try:
            usage = _usage_of(handles, container)
            keep = self._hold and self._handles + handles.handles <= _most_handles()
        finally:
            if keep:
                self._held[key] = handles
                self._handles += handles.handles
            else:
                handles.close()
        return usage

    def _forget_all_but(self, kept_keys: set[tuple[str, float]]) -> None:
        for key in [key_of_container for key_of_container in self._held if key_of_container not in kept_keys]:
            self._held.pop(key).close()
        self._cgroups.keep_only({container_id for container_id, _ in kept_keys})


def _most_handles() -> float:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft - min(soft // 2, _LEFT_HANDLES)


def _key(container: Container) -> tuple[str, float]:
    return container.id, container.started_at


def _usage_of(handles: Handles, container: Container) -> Usage:
    """Read all values of one container. Raises Unreadable."""
    try:
        return usage_of(handles, with_network=container.networks not in _NO_OWN_NETWORK, log_path=container.log_path)
    except (OSError, ValueError, KeyError) as error:
        raise Unreadable(f"the usage of {container.name} can't be read: {error}") from error


def _cpu_seconds(cgroups: Cgroups, container: Container) -> float:
    """Return the CPU time of one container in seconds. Raises Unreadable."""
    handles = open_folders(cgroups, container.id, container.pid, ("cpuacct",))
    try:
        if handles.versions["cpuacct"] == 1:
            return _cpu_time1(handles)
        return _cpu_time2(handles.pairs("cpuacct", "cpu.stat"))
    except (OSError, ValueError, KeyError) as error:
        raise Unreadable(f"the CPU time of {container.name} can't be read: {error}") from error
    finally:
        handles.close()


def working_set_bytes(cgroups: Cgroups, container_id: str, pid: int) -> int:
    """Return the memory in use without the inactive file cache. Raises Unreadable."""
    handles = open_folders(cgroups, container_id, pid)
    try:
        memory = _memory1(handles) if handles.versions["memory"] == 1 else _memory2(handles)
        return int(memory["memory_working_set_bytes"] or 0)
    except (OSError, ValueError, KeyError) as error:
        raise Unreadable(f"the memory of container {container_id[:12]} can't be read: {error}") from error
    finally:
        handles.close()


def open_folders(
    cgroups: Cgroups, container_id: str, pid: int, controllers: Sequence[str] = _CONTROLLERS, *, stalls: bool = False
) -> Handles:
    """Open the cgroup folders of a container's process; with `stalls`, the v2 tree's, too. Raises Unreadable."""
    handles: dict[str, int] = {}
    try:
        handles["/"] = _open_folder(str(cgroups.proc / str(pid)))
        # Below the held /proc folder: fails if the pid was reused.
        folders = cgroups.folders(read_at(handles["/"], "cgroup"), container_id)
        chosen = {controller: folder_of(folders, controller) for controller in controllers}
        if stalls and _STALLS in folders:
            chosen[_STALLS] = folders[_STALLS]
        for folder in set(chosen.values()):
            handles[folder.path] = _open_folder(folder.path)
        return _handles_of(handles, chosen)
    except (OSError, ValueError, Unreadable) as error:
        for handle in handles.values():
            os.close(handle)
        if isinstance(error, Unreadable):
            raise
        cgroups.forget_mounts()
        raise Unreadable(f"the cgroups of container {container_id[:12]} can't be opened: {error}") from error


def _handles_of(handles: Mapping[str, int], chosen: Mapping[str, Folder]) -> Handles:
    return Handles(
        handles["/"],
        {name: handles[folder.path] for name, folder in chosen.items()},
        {name: folder.version for name, folder in chosen.items()},
    )


def _open_folder(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def usage_of(handles: Handles, *, with_network: bool, log_path: str = "") -> Usage:
    """Read all values of one container. Raises OSError, ValueError or KeyError if one can't be read."""
    versions = handles.versions
    values: dict[str, Any] = {  # of each group of files the fields that it fills
        "source": "cgroup1" if versions["memory"] == 1 else "cgroup2",
        "log_bytes": log_bytes(log_path),
        "network": parse_net_dev(read_at(handles.process, "net/dev")) if with_network else None,
        **(_cpu1(handles) if versions["cpuacct"] == 1 else _cpu2(handles)),
        **(_quota1(handles) if versions["cpu"] == 1 else _quota2(handles)),
        **(_memory1(handles) if versions["memory"] == 1 else _memory2(handles)),
        **(_disk1(handles) if versions["blkio"] == 1 else _disk2(handles)),
        **_pids(handles),
        **(read_stalls(lambda name: handles.data(_STALLS, name).decode()) if _STALLS in handles.folders else {}),
    }
    return Usage(**values)


Figures = dict[str, float | None]


def _cpu_time1(handles: Handles) -> float:
    return handles.number("cpuacct", "cpuacct.usage") / 1e9


def _cpu_time2(stat: Mapping[bytes, bytes]) -> float:
    return int(stat[b"usage_usec"]) / 1e6


def _cpu1(handles: Handles) -> Figures:
    # cpuacct.usage_user counts double on some kernels; cpuacct.stat is coarse (10 ms) but right.
    ticks = handles.pairs("cpuacct", "cpuacct.stat")
    return {
        "cpu_usage_seconds": _cpu_time1(handles),
        "cpu_user_seconds": int(ticks[b"user"]) / _TICKS_A_SECOND,
        "cpu_system_seconds": int(ticks[b"system"]) / _TICKS_A_SECOND,
    }


def _cpu2(handles: Handles) -> Figures:
    stat = handles.pairs("cpuacct", "cpu.stat")
    return {
        "cpu_usage_seconds": _cpu_time2(stat),
        "cpu_user_seconds": int(stat[b"user_usec"]) / 1e6,
        "cpu_system_seconds": int(stat[b"system_usec"]) / 1e6,
    }


def _quota1(handles: Handles) -> Figures:
    quota, period = handles.number("cpu", "cpu.cfs_quota_us"), handles.number("cpu", "cpu.cfs_period_us")
    if quota <= 0:
        return {}
    stat = handles.pairs("cpu", "cpu.stat")
    return _throttling(stat) | {
        "cpu_throttled_seconds": int(stat[b"throttled_time"]) / 1e9,
        "cpu_limit_cores": quota / period,
    }


def _quota2(handles: Handles) -> Figures:
    quota, period = parse_cpu_max(handles.data("cpu", "cpu.max").decode())
    if quota is None:
        return {}
    stat = handles.pairs("cpu", "cpu.stat")
    return _throttling(stat) | {
        "cpu_throttled_seconds": int(stat[b"throttled_usec"]) / 1e6,
        "cpu_limit_cores": quota / period,
    }


def _throttling(stat: Mapping[bytes, bytes]) -> Figures:
    return {"cpu_periods": int(stat[b"nr_periods"]), "cpu_throttled_periods": int(stat[b"nr_throttled"])}


def _memory1(handles: Handles) -> Figures:
    stat = handles.pairs("memory", "memory.stat")
    usage = handles.number("memory", "memory.usage_in_bytes")
    limit = handles.limit("memory", "memory.limit_in_bytes")
    both = _optional_limit(handles, "memory.memsw.limit_in_bytes")
    failed_both = _number(handles.optional("memory", "memory.memsw.failcnt")) or 0
    return {
        "memory_usage_bytes": usage,
        "memory_working_set_bytes": max(0, usage - int(stat[b"total_inactive_file"])),
        "memory_rss_bytes": int(stat[b"total_rss"]),
        "memory_cache_bytes": int(stat[b"total_cache"]),
        "memory_kernel_bytes": _number(handles.optional("memory", "memory.kmem.usage_in_bytes")),
        "memory_swap_bytes": _number(stat.get(b"total_swap")),
        "memory_peak_bytes": handles.number("memory", "memory.max_usage_in_bytes"),
        "memory_major_faults": int(stat[b"total_pgmajfault"]),
        "memory_limit_hits": handles.number("memory", "memory.failcnt") + failed_both,
        "oom_kills": _number(handles.pairs("memory", "memory.oom_control").get(b"oom_kill")),
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
        "memory_kernel_bytes": _number(stat.get(b"kernel")),
        "memory_swap_bytes": _number(handles.optional("memory", "memory.swap.current")),
        "memory_peak_bytes": _number(handles.optional("memory", "memory.peak")),
        "memory_major_faults": int(stat[b"pgmajfault"]),
        "memory_limit_hits": int(events[b"max"]),
        "oom_kills": int(events[b"oom_kill"]),
        "memory_limit_bytes": handles.limit("memory", "memory.max"),
        "memory_swap_limit_bytes": _optional_limit(handles, "memory.swap.max"),
    }


def _optional_limit(handles: Handles, name: str) -> int | None:
    data = handles.optional("memory", name)
    return None if data is None else limit_of(data.decode())


def _disk1(handles: Handles) -> Figures:
    """Return the disk values; cgroup v1 does not count buffered writes."""
    transfers = _by_word(handles.optional("blkio", "blkio.throttle.io_service_bytes_recursive"))
    calls = _by_word(handles.optional("blkio", "blkio.throttle.io_serviced_recursive"))
    return {
        "fs_read_bytes": transfers.get("read"),
        "fs_write_bytes": transfers.get("write"),
        "fs_reads": calls.get("read"),
        "fs_writes": calls.get("write"),
    }


def _disk2(handles: Handles) -> Figures:
    stat = _by_key(handles.optional("blkio", "io.stat"))
    return {
        "fs_read_bytes": stat.get("rbytes"),
        "fs_write_bytes": stat.get("wbytes"),
        "fs_reads": stat.get("rios"),
        "fs_writes": stat.get("wios"),
    }


def _by_word(data: bytes | None) -> Mapping[str, int]:
    """Sum v1's `8:0 Read 4096` lines over devices; empty without the file or any device.

    Kernels from 6.10 on count nothing until a device has a limit; `Total 0` is no value then.
    """
    if data is None or b":" not in data:
        return {}
    sums = {"read": 0, "write": 0}
    for fields in map(str.split, data.decode().splitlines()):
        if len(fields) == 3 and fields[1].lower() in sums:
            sums[fields[1].lower()] += int(fields[2])
    return sums


def _by_key(data: bytes | None) -> Mapping[str, int]:
    """Sum v2's `8:0 rbytes=4096 wbytes=0 ...` lines over devices; empty without the file."""
    if data is None:
        return {}
    sums = {"rbytes": 0, "wbytes": 0, "rios": 0, "wios": 0}
    for token in data.decode().split():
        name, equals, value = token.partition("=")
        if equals and name in sums:
            sums[name] += int(value)
    return sums


def _pids(handles: Handles) -> Figures:
    events = pairs(handles.optional("pids", "pids.events") or b"")
    return {
        "pids": handles.number("pids", "pids.current"),
        "pids_peak": _number(handles.optional("pids", "pids.peak")),
        "pids_limit": handles.limit("pids", "pids.max"),
        "pids_limit_hits": _number(events.get(b"max")),
    }


def _number(data: bytes | None) -> int | None:
    return None if data is None else int(data)


def parse_net_dev(text: str) -> NetworkUsage:
    """Sum the counters of /proc/<pid>/net/dev over all interfaces but lo."""
    sums = [0] * 16
    for line in text.splitlines()[2:]:  # without its heading
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            sums = list(map(add, sums, map(int, counters.split())))
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
