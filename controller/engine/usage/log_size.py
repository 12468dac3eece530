"""Size of a container's log on disk."""

import os

# More than this many rotated files are not counted.
_ROTATED = 9


def log_bytes(path: str) -> int | None:
    """Return the size of a container's log with its rotated files; None if missing or unreadable."""
    if not path:
        return None
    try:
        size = os.stat(path).st_size
    except OSError:
        return None
    for number in range(1, _ROTATED + 1):
        try:
            size += os.stat(f"{path}.{number}").st_size
        except OSError:
            break
    return size
