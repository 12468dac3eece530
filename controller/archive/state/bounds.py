"""Limits of a save or a restore, and its report."""

import time
from collections.abc import Callable
from typing import NamedTuple

from ..names import DEPTH, PATH_BYTES, shown

_OMISSIONS = 100  # messages that a report has; all are counted
_OWNERS = 1000


class BoundExceeded(Exception):
    """The folder or archive exceeds a bound. `bound` is its name in `Bounds`."""

    def __init__(self, bound: str, message: str) -> None:
        super().__init__(message)
        self.bound = bound


class Bounds(NamedTuple):
    """Limits of one folder.

    `bytes` counts file data without holes; `header_bytes` is of one entry's extended header, so of its attributes, too.
    `archive_bytes` counts all that a save writes: many empty files with attributes have no data, and fill a disk.
    `seconds` None: no limit. `ticks` is a monotonic clock.
    """

    entries: int = 1_000_000
    depth: int = DEPTH
    bytes: int = 64 << 30
    header_bytes: int = 128 << 10
    archive_bytes: int = 128 << 30
    seconds: float | None = None
    ticks: Callable[[], float] = time.monotonic


class Omission(NamedTuple):
    """File that a save left out, and the reason."""

    name: str
    reason: str


class Report:
    """Result of a save or a restore.

    `bytes` is file data without holes, `archive_bytes` the size of the stream. `omissions` are the first hundred files
    that were left out, `omission_count` all of them. `uids` and `gids` are the owners of the entries, the first
    thousand.
    """

    def __init__(self) -> None:
        self.entries = self.bytes = self.archive_bytes = self.omission_count = 0
        self.omissions: list[Omission] = []
        self.uids: set[int] = set()
        self.gids: set[int] = set()

    def omit(self, name: bytes, reason: str) -> None:
        """Count a file that is left out."""
        self.omission_count += 1
        if len(self.omissions) < _OMISSIONS:
            self.omissions.append(Omission(shown(name), reason))

    def add_owner(self, uid: int, gid: int) -> None:
        """Remember the owner of an entry."""
        if len(self.uids) < _OWNERS and len(self.gids) < _OWNERS:
            self.uids.add(uid)
            self.gids.add(gid)


class Meter:
    """Count of one run against its bounds. Raises BoundExceeded."""

    def __init__(self, bounds: Bounds, report: Report) -> None:
        self._bounds, self._report = bounds, report
        self._end = None if bounds.seconds is None else bounds.ticks() + bounds.seconds

    def count_entry(self) -> None:
        """Count one more entry, and look at the clock."""
        report = self._report
        report.entries += 1
        if report.entries > self._bounds.entries:
            raise BoundExceeded("entries", f"there are more than {self._bounds.entries} files")
        if not report.entries & 63:
            self.check_time()

    def count_bytes(self, count: int) -> None:
        """Count file data, before it is copied."""
        report = self._report
        report.bytes += count
        if report.bytes > self._bounds.bytes:
            raise BoundExceeded("bytes", f"the files have more than {self._bounds.bytes} bytes")

    def count_archive(self, count: int) -> None:
        """Count bytes of the archive, before they are written."""
        report = self._report
        report.archive_bytes += count
        if report.archive_bytes > self._bounds.archive_bytes:
            raise BoundExceeded("archive_bytes", f"their archive has more than {self._bounds.archive_bytes} bytes")

    def check_time(self) -> None:
        """Compare the clock with the limit."""
        if self._end is not None and self._bounds.ticks() > self._end:
            raise BoundExceeded("seconds", f"it takes longer than {self._bounds.seconds:g} s")

    def check_path(self, path: bytes, depth: int) -> None:
        """Compare the length of a path with the limits; `depth` is its number of names."""
        if depth > self._bounds.depth or len(path) > PATH_BYTES:
            raise BoundExceeded("depth", f"{shown(path)}: it is nested deeper than {self._bounds.depth} folders")

    def check_header(self, size: int) -> None:
        """Compare the size of an extended header with the limit."""
        if size > self._bounds.header_bytes:
            raise BoundExceeded("header_bytes", f"the attributes of a file exceed {self._bounds.header_bytes} bytes")
