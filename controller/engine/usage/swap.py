"""Active swap of this host, from /proc/swaps and /sys: where the memory of a hibernated sandbox would go."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from controller.kinds.observed.swap import HostSwap, SwapDevice, SwapKind

_ENCRYPTED = "CRYPT-"  # of a device-mapper device made by cryptsetup
_DEEPEST = 8  # device-mapper devices below each other


class SwapGauge:
    """ports.SwapGauge for this host. `root` is its root folder."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self) -> HostSwap:
        """Read all active swap, and whether memory can be moved to it."""
        try:
            lines = (self._root / "proc/swaps").read_text().splitlines()[1:]
            devices = tuple(self._device(line) for line in lines if line.strip())
        except (OSError, ValueError, IndexError) as error:
            return HostSwap(trouble=f"the host's swap can't be read: {error}")
        return HostSwap(devices, self._trouble())

    def _trouble(self) -> str:
        """Return why the kernel moves no memory of a container to swap on request; "" if it does."""
        cgroup = self._root / "sys/fs/cgroup"
        if (cgroup / "cgroup.controllers").exists():
            return self._trouble2(cgroup)
        folder = cgroup / "memory"
        if not (folder / "memory.memsw.limit_in_bytes").exists() and not (folder / "memory.swappiness").exists():
            return "the kernel has no memory cgroup; boot it with cgroup_enable=memory"
        return ""

    def _trouble2(self, cgroup: Path) -> str:
        """Return the same for cgroup v2, whose root has no memory files: any group below it tells."""
        for group in sorted(cgroup.iterdir()):
            if (group / "memory.max").exists():
                if not (group / "memory.swap.max").exists():
                    return "the kernel does not account for swap; boot it with swapaccount=1"
                if not (group / "memory.reclaim").exists():
                    return "the kernel has no memory.reclaim; it came with Linux 5.19"
                return ""
        return "the memory controller of cgroup v2 is not in use on this host"

    def _device(self, line: str) -> SwapDevice:
        path, kind, size, used_kib, *_ = line.split()
        path = path.replace("\\040", " ")
        return SwapDevice(path, self._kind(path, kind), int(size) << 10, int(used_kib) << 10)

    def _kind(self, path: str, kind: str) -> SwapKind:
        if kind == "file":
            return self._of_numbers(os.stat(path).st_dev) if os.path.exists(path) else "Plain"
        try:
            node = os.stat(self._root / path.lstrip("/"))
        except OSError:
            return self._of_block(Path(path).name)
        return self._of_numbers(node.st_rdev) if stat.S_ISBLK(node.st_mode) else self._of_block(Path(path).name)

    def _of_numbers(self, device: int) -> SwapKind:
        link = self._root / "sys/dev/block" / f"{os.major(device)}:{os.minor(device)}"
        return self._of_block(link.resolve().name) if link.exists() else "Plain"

    def _of_block(self, name: str, depth: int = 0) -> SwapKind:
        """Return the kind of a block device, by the least safe device below it."""
        folder = self._root / "sys/class/block" / name
        if name.startswith("zram"):
            backing = _text(folder / "backing_dev")
            return "Memory" if backing in ("", "none") else self._of_block(Path(backing).name, depth + 1)
        if _text(folder / "dm/uuid").startswith(_ENCRYPTED):
            return "Encrypted"
        below = {self._of_block(slave, depth + 1) for slave in _slaves(folder)} if depth < _DEEPEST else set()
        return "Encrypted" if below == {"Encrypted"} else "Plain"


def _slaves(folder: Path) -> Iterator[str]:
    try:
        yield from sorted(slave.name for slave in (folder / "slaves").iterdir())
    except OSError:
        return


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
