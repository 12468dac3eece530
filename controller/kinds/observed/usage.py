"""Resource usage of a container, read from its cgroup and its network namespace."""

from dataclasses import dataclass
from typing import NamedTuple

from controller.kinds.observed.observed import Container


class NetworkUsage(NamedTuple):
    """Counters summed over the container's own interfaces (without lo), since its network namespace was created."""

    receive_bytes: int
    transmit_bytes: int
    receive_packets: int
    transmit_packets: int
    receive_errors: int
    transmit_errors: int
    receive_dropped: int
    transmit_dropped: int


class Usage(NamedTuple):
    """Usage of one running container at one time. None: not available on this host, or no limit is set.

    Counters start at the container's last start. engine/usage/cgroup.py names the sources for cgroup v1 and v2. It is a
    tuple, which is made four times as fast as a frozen dataclass: one for each container and scrape.
    """

    source: str  # cgroup1 | cgroup2
    cpu_usage_seconds: float
    cpu_user_seconds: float
    cpu_system_seconds: float
    memory_usage_bytes: int
    memory_working_set_bytes: int
    memory_rss_bytes: int
    memory_cache_bytes: int
    pids: int
    cpu_periods: int | None = None
    cpu_throttled_periods: int | None = None
    cpu_throttled_seconds: float | None = None
    memory_kernel_bytes: int | None = None
    memory_swap_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_major_faults: int | None = None
    memory_limit_hits: int | None = None
    oom_kills: int | None = None
    pids_peak: int | None = None
    pids_limit: int | None = None
    pids_limit_hits: int | None = None
    memory_limit_bytes: int | None = None
    memory_swap_limit_bytes: int | None = None
    cpu_limit_cores: float | None = None
    fs_read_bytes: int | None = None
    fs_write_bytes: int | None = None
    fs_reads: int | None = None
    fs_writes: int | None = None
    log_bytes: int | None = None
    network: NetworkUsage | None = None
    cpu_waiting_seconds: float | None = None
    cpu_stalled_seconds: float | None = None
    memory_waiting_seconds: float | None = None
    memory_stalled_seconds: float | None = None
    io_waiting_seconds: float | None = None
    io_stalled_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LayerUsage:
    """Disk usage of a container's writable layer at `at` (Unix seconds); None if unknown, `trouble` says why."""

    used_bytes: int | None
    at: float
    trouble: str = ""


NOT_MEASURED = LayerUsage(None, 0.0)


@dataclass(frozen=True, slots=True)
class FolderUse:
    """Use of one in-memory folder. `files` is the used share of the files that it may hold."""

    path: str
    used_bytes: int
    size_bytes: int
    files: float = 0.0

    @property
    def share(self) -> float:
        """The used share, of bytes or files."""
        return max(self.used_bytes / self.size_bytes if self.size_bytes else 0.0, self.files)


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Usage of one run at `at` (Unix seconds); of CPU in the `window_seconds` before."""

    container: Container
    usage: Usage
    at: float
    cpu_cores: float
    window_seconds: float
