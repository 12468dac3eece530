"""Mounts that a test has left behind on this host."""

import subprocess
from pathlib import Path


def unmount_below(folder: Path) -> None:
    """Unmount all that is mounted there or below, what came last first. Nothing below may be deleted before.

    A daemon that still runs may be quicker with one of them; and while mounts change, umount may overlook one.
    """
    for path in reversed(_mounted(folder)):
        for _ in range(50):
            done = subprocess.run(["umount", "--lazy", path], capture_output=True, text=True, check=False)
            if done.returncode == 0 or path not in _mounted(folder):
                break
        else:
            raise AssertionError(f"{path} can't be unmounted: {done.stderr}")


def _mounted(folder: Path) -> list[str]:
    """Return the mounts there and below, oldest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [path for path in (line.split(" ")[4] for line in lines) if Path(path).is_relative_to(folder)]
