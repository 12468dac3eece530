"""Usage of containers, read from their cgroup files and network namespaces; never from Docker.

What is read of them: cpu.py, memory.py, disk.py, network.py, log_size.py. Their files stay open between readings
(handles.py), keyed by (container id, start time). `/proc/<pid>/net/dev` is never kept open: that would pin the network
namespace.
"""

import contextlib
import math
import resource
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from controller.engine.kernel.cgroups import Cgroups, Unreadable, pairs, read_at
from controller.engine.usage.cpu import cpu_figures, cpu_seconds
from controller.engine.usage.disk import disk_figures
from controller.engine.usage.handles import STALLS, Figures, Handles, number_of, open_folders
from controller.engine.usage.log_size import log_bytes
from controller.engine.usage.memory import memory_figures
from controller.engine.usage.network import parse_net_dev
from controller.engine.usage.pressure_stall import read_stalls
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import Usage

_LIVE = (State.RUNNING, State.PAUSED)
_NO_OWN_NETWORK = (("none",), ("host",), ())
# File descriptors of the process that are left to connections and streams, at most a half; beyond the rest, files are
# opened for each reading. A container has about 26 with cgroup v1 and 17 with v2; the kernel needs 4 KiB for each.
_LEFT_HANDLES = 4096


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
    return container.run


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
        return cpu_seconds(handles)
    except (OSError, ValueError, KeyError) as error:
        raise Unreadable(f"the CPU time of {container.name} can't be read: {error}") from error
    finally:
        handles.close()


def usage_of(handles: Handles, *, with_network: bool, log_path: str = "") -> Usage:
    """Read all values of one container. Raises OSError, ValueError or KeyError if one can't be read."""
    values: dict[str, Any] = {  # of each group of files the fields that it fills
        "source": "cgroup1" if handles.versions["memory"] == 1 else "cgroup2",
        "log_bytes": log_bytes(log_path),
        "network": parse_net_dev(read_at(handles.process, "net/dev")) if with_network else None,
        **cpu_figures(handles),
        **memory_figures(handles),
        **disk_figures(handles),
        **_pids(handles),
        **(read_stalls(lambda name: handles.data(STALLS, name).decode()) if STALLS in handles.folders else {}),
    }
    return Usage(**values)


def _pids(handles: Handles) -> Figures:
    events = pairs(handles.optional("pids", "pids.events") or b"")
    return {
        "pids": handles.number("pids", "pids.current"),
        "pids_peak": number_of(handles.optional("pids", "pids.peak")),
        "pids_limit": handles.limit("pids", "pids.max"),
        "pids_limit_hits": number_of(events.get(b"max")),
    }
