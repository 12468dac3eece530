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

    Counters start at the container's last start. engine/usage/ names the sources for cgroup v1 and v2. It is a
    tuple, which is made four times as fast as a frozen dataclass: one for each container and scrape.
    """

    source: str
    """cgroup1 or cgroup2."""
    cpu_usage_seconds: float
    """Processor time."""
    cpu_user_seconds: float
    """Processor time of programs."""
    cpu_system_seconds: float
    """Processor time of the kernel for them."""
    memory_usage_bytes: int
    """Memory, with the page cache."""
    memory_working_set_bytes: int
    """Memory that can't be reclaimed at once."""
    memory_rss_bytes: int
    """Anonymous memory."""
    memory_cache_bytes: int
    """Page cache, with files in memory."""
    pids: int
    """Processes and threads."""
    cpu_periods: int | None = None
    """Periods in which its CPU limit counted."""
    cpu_throttled_periods: int | None = None
    """Periods in which it was throttled."""
    cpu_throttled_seconds: float | None = None
    """Time for which it was throttled."""
    memory_kernel_bytes: int | None = None
    """Memory of the kernel for it."""
    memory_swap_bytes: int | None = None
    """Memory in swap."""
    memory_peak_bytes: int | None = None
    """Most memory since its start."""
    memory_major_faults: int | None = None
    """Page faults that read a disk."""
    memory_limit_hits: int | None = None
    """Times that it ran into its memory limit."""
    oom_kills: int | None = None
    """Processes that the kernel killed for want of memory."""
    pids_peak: int | None = None
    """Most processes since its start."""
    pids_limit: int | None = None
    """Limit of processes."""
    pids_limit_hits: int | None = None
    """Times that it ran into that limit."""
    memory_limit_bytes: int | None = None
    """Limit of memory."""
    memory_swap_limit_bytes: int | None = None
    """Limit of swap."""
    cpu_limit_cores: float | None = None
    """Limit of CPU."""
    fs_read_bytes: int | None = None
    """Bytes read from disks."""
    fs_write_bytes: int | None = None
    """Bytes written to disks."""
    fs_reads: int | None = None
    """Reads of disks."""
    fs_writes: int | None = None
    """Writes to disks."""
    log_bytes: int | None = None
    """Size of its log."""
    network: NetworkUsage | None = None
    """Traffic of its interfaces."""
    cpu_waiting_seconds: float | None = None
    """Time in which some process waited for a processor (PSI some)."""
    cpu_stalled_seconds: float | None = None
    """Time in which all did (PSI full)."""
    memory_waiting_seconds: float | None = None
    """Time in which some process waited for memory."""
    memory_stalled_seconds: float | None = None
    """Time in which all did."""
    io_waiting_seconds: float | None = None
    """Time in which some process waited for a disk."""
    io_stalled_seconds: float | None = None
    """Time in which all did."""


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
