"""How large the log of a container is, as its files on the engine's machine tell."""

import os

# More than this many rotated files are counted no further.
_ROTATED = 9


def log_bytes(path: str) -> int | None:
    """Size of a container's log and of those that it was rotated into; None where there is none, or out of sight."""
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
