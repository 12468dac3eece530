"""Ids of the users that sandboxes run as: a range of which each sandbox has one of its own, as uid and gid.

The kernel counts some resources by uid alone, across containers: inotify instances, pipe pages, descriptors in flight,
pending signals. So sandboxes of one uid can starve each other.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# No user of a host, and no user of a distribution's image, has an id from here up.
LOWEST_FREE_ID = 10_000
# The user of sandboxes without an id of their own, and of Paddock's images.
SHARED_ID = 20_000
# Signed 32-bit ids are refused by some programs.
_HIGHEST_ID = (1 << 31) - 1
_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class IdRange:
    """Ids from `first` to `last`, both included."""

    first: int
    last: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def overlaps(self, other: "IdRange") -> bool:
        """Return True if an id is in both."""
        return self.first <= other.last and other.first <= self.last


# An engine that maps users has 65,536 ids for all its containers, which are others on the host.
MAPPED_IDS = IdRange(SHARED_ID + 1, 65_533)


def parse_range(text: str) -> IdRange:
    """Return the range of `FIRST-LAST`. Raises ValueError with the reason."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError("must be FIRST-LAST, such as 2000000-2065535")
    ids = IdRange(int(match[1]), int(match[2]))
    if ids.first < LOWEST_FREE_ID or ids.last > _HIGHEST_ID or not len(ids) > 0:
        raise ValueError(f"must go up, from {LOWEST_FREE_ID} or higher to {_HIGHEST_ID} or lower")
    if SHARED_ID in ids:
        raise ValueError(f"must be without {SHARED_ID}, the user of Paddock's images")
    return ids


def overlapping(ids: IdRange, passwd: Iterable[str], delegated: Iterable[str]) -> Iterator[str]:
    """Yield the users of a host whose ids are in the range, as text.

    `passwd` are lines of passwd(5) (or group(5)), `delegated` lines of subuid(5) (or subgid(5)).
    """
    for line in passwd:
        name, _, number, *_ = (*line.strip().split(":"), "", "", "")
        if number.isascii() and number.isdigit() and int(number) in ids:
            yield f"{name} has {number}"
    for line in delegated:
        name, first, count, *_ = (*line.strip().split(":"), "", "", "")
        if first.isascii() and first.isdigit() and count.isascii() and count.isdigit() and int(count):
            delegated_ids = IdRange(int(first), int(first) + int(count) - 1)
            if ids.overlaps(delegated_ids):
                yield f"{name} has {delegated_ids}"


def own_id(user: str) -> int:
    """Return the number of a container's user `uid[:gid]`; 0 for root, a name, or the image's own."""
    uid = user.partition(":")[0]
    return int(uid) if uid.isascii() and uid.isdigit() else 0
