"""How full the file system is that holds the engine's data."""

import os


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
