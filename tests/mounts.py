"""Mounts that a test has left behind on this host."""

import subprocess
from pathlib import Path


def unmount_below(folder: Path) -> None:
    """Unmount all that is mounted there or below, what came last first. Nothing below may be deleted before."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [path for path in (line.split(" ")[4] for line in lines) if Path(path).is_relative_to(folder)]
    for each in reversed(found):
        subprocess.run(["umount", "--lazy", each], check=True)
