"""Free resources of the engine's host: memory, disk space and inodes for the engine's data, pids; waits for memory."""

import os
from pathlib import Path

from controller.kinds.observed.pressure import HostUse, Supply
from controller.ports import Clock

_UNKNOWN = Supply()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HostGauge:
    """ports.HostGauge for an engine on this host. `proc` is the mount point of procfs."""

    def __init__(self, clock: Clock, *, proc: Path = Path("/proc")) -> None:
        self._clock, self._proc = clock, proc
        self._swapped_in: tuple[float, int] | None = None  # at the last reading: its time, and the bytes since the boot

    def read(self, root_dir: str) -> HostUse:
        """Read once; unreadable values are left out. `root_dir` is the engine's data folder ("": unknown)."""
        disk, inodes = _file_system(root_dir)
        now, stall = self._clock.now(), self._memory_stall()
        return HostUse(now, self._memory(), disk, inodes, self._pids(), stall, self._swap_in(now))

    def _memory(self) -> Supply:
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
            figures = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.endswith(" kB")}
            return Supply(figures["MemAvailable"], figures["MemTotal"])
        except (OSError, KeyError, ValueError, IndexError):
            return _UNKNOWN

    def _memory_stall(self) -> float:
        """Read the share of the last ten seconds in which some process waited for memory; 0 without PSI."""
        try:
            some = (self._proc / "pressure/memory").read_text().splitlines()[0]
            return float(some.split("avg10=")[1].split()[0]) / 100
        except (OSError, ValueError, IndexError):
            return 0.0

    def _swap_in(self, now: float) -> float | None:
        """Return the bytes a second read from swap since the last reading; None at the first one, or unreadable."""
        before, self._swapped_in = self._swapped_in, None
        try:
            lines = (self._proc / "vmstat").read_text().splitlines()
            pages = next(int(line.split()[1]) for line in lines if line.startswith("pswpin "))
        except (OSError, ValueError, IndexError, StopIteration):
            return None
        self._swapped_in = now, pages * _PAGE_BYTES
        if before is None or now <= before[0]:
            return None
        return (self._swapped_in[1] - before[1]) / (now - before[0])

    def _pids(self) -> Supply:
        """Read the free pids; each thread uses one."""
        try:
            used_count = int((self._proc / "loadavg").read_text().split()[3].split("/")[1])
            bounds = [int((self._proc / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max")]
            return Supply(max(0, min(bounds) - used_count), min(bounds))
        except (OSError, ValueError, IndexError):
            return _UNKNOWN


def _file_system(path: str) -> tuple[Supply, Supply]:
    if not path:
        return _UNKNOWN, _UNKNOWN
    try:
        status = os.statvfs(path)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    bytes_ = Supply(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)
    return bytes_, Supply(status.f_favail, status.f_files)


def disk_share(root_dir: str) -> float | None:
    """Return the used share of the engine's file system; None if unreadable (another host)."""
    if not root_dir:
        return None
    try:
        status = os.statvfs(root_dir)
    except OSError:
        return None
    most = status.f_blocks - status.f_bfree + status.f_bavail
    return 1 - status.f_bavail / most if most else None
