"""What the engine's machine has left, as the kernel tells: memory, room and inodes for the engine's data, PIDs."""

import os
from pathlib import Path

from controller.kinds.observed.pressure import HostUse, Supply
from controller.ports import Clock

_UNKNOWN = Supply()


class HostGauge:
    """ports.HostGauge for an engine on this machine. `proc` is where the kernel tells."""

    def __init__(self, clock: Clock, *, proc: Path = Path("/proc")) -> None:
        self._clock, self._proc = clock, proc

    def read(self, root_dir: str) -> HostUse:
        """One reading; what can't be read is left out. `root_dir` is where the engine keeps its data ("": unknown)."""
        disk, inodes = _file_system(root_dir)
        return HostUse(self._clock.now(), self._memory(), disk, inodes, self._pids())

    def _memory(self) -> Supply:
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
            found = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.endswith(" kB")}
            return Supply(found["MemAvailable"], found["MemTotal"])
        except (OSError, KeyError, ValueError, IndexError):
            return _UNKNOWN

    def _pids(self) -> Supply:
        """Threads, too, take a pid each."""
        try:
            used = int((self._proc / "loadavg").read_text().split()[3].split("/")[1])
            bounds = [int((self._proc / "sys/kernel" / each).read_text()) for each in ("pid_max", "threads-max")]
            return Supply(max(0, min(bounds) - used), min(bounds))
        except (OSError, ValueError, IndexError):
            return _UNKNOWN


def _file_system(path: str) -> tuple[Supply, Supply]:
    if not path:
        return _UNKNOWN, _UNKNOWN
    try:
        found = os.statvfs(path)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    bytes_ = Supply(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
    return bytes_, Supply(found.f_favail, found.f_files)


def disk_share(root_dir: str) -> float | None:
    """The share that is taken, of what paddock and the engine may fill; None where it can't be seen (another host)."""
    if not root_dir:
        return None
    try:
        found = os.statvfs(root_dir)
    except OSError:
        return None
    most = found.f_blocks - found.f_bfree + found.f_bavail
    return 1 - found.f_bavail / most if most else None
