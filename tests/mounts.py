"""Mounts that a test has left behind on this host."""

import subprocess
from pathlib import Path


def unmount_below(folder: Path) -> None:
    """Unmount all that is mounted there or below, what came last first. Nothing below may be deleted before.

    A daemon that still runs may be quicker with one of them.
    """
    for each in reversed(_mounted(folder)):
        done = subprocess.run(["umount", "--lazy", each], capture_output=True, text=True, check=False)
        assert done.returncode == 0 or each not in _mounted(folder), done.stderr


def _mounted(folder: Path) -> list[str]:
    """Return the mounts there and below, oldest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [path for path in (line.split(" ")[4] for line in lines) if Path(path).is_relative_to(folder)]
