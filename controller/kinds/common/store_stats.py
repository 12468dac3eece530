"""Figures of a store, for metrics and diagnostics."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Size and contents of a store. `backend` is `sqlite` or `postgresql`, `revision` the schema's.

    `wal_bytes` None: the backend has no such file. `objects` counts by kind; kinds without objects are left out.
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
    """The store's connection pool now. `most` is its maximum."""

    checked_in: int
    checked_out: int
    overflow: int
    most: int
