"""Backup of the store while the daemon runs."""

from typing import BinaryIO

from controller.ports import Clock, Meter, NullMeter, Store
from controller.service import errors
from controller.service.access.audit import entry


class Backup:
    """The use-case."""

    def __init__(self, store: Store, clock: Clock, meter: Meter | None = None) -> None:
        self._store, self._clock, self._meter = store, clock, meter or NullMeter()

    def make(self) -> BinaryIO:
        """Return an open, unnamed file; the caller closes it. Raises ServiceUnavailable."""
        with errors.translate_store_errors():
            self._store.audit.append([entry(self._clock, "backup")])
            copy = self._store.backup()
        self._meter.gauge("paddock_store_last_backup_timestamp_seconds", self._clock.now())
        return copy
