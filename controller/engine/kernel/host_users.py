"""Users of this host whose ids lie in a range. Only its files are read: a directory service is not asked."""

from collections.abc import Iterator
from pathlib import Path

from controller.kinds.runtime.user_ids import IdRange, overlapping

_USERS, _DELEGATED = ("passwd", "group"), ("subuid", "subgid")


def read_overlaps(own_ids: IdRange, etc: Path = Path("/etc")) -> tuple[str, ...]:
    """Return the users and groups with ids in the range, as text."""
    users, delegated = ([line for name in names for line in _lines(etc / name)] for names in (_USERS, _DELEGATED))
    return tuple(dict.fromkeys(overlapping(own_ids, users, delegated)))


def _lines(file: Path) -> Iterator[str]:
    try:
        yield from file.read_text(errors="replace").splitlines()
    except OSError:  # a host without it
        return
