"""What a store tells of itself, for those who watch over it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """`backend` is `sqlite` or `postgresql`, `revision` the schema's. `wal_bytes` None: there is none to know of.

    `objects` are counts by kind, without those of which there is no object.
    """

    backend: str
    server_version: str
    revision: str
    schema_current: bool
    size_bytes: int
    wal_bytes: int | None
    objects: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Connections:
    """A store's pool of connections now; `most` is the most that it opens."""

    checked_in: int
    checked_out: int
    overflow: int
    most: int
