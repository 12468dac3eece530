"""A copy of everything that is stored, made while the daemon runs."""

from typing import BinaryIO

from controller.ports import Clock, Store
from controller.service import errors
from controller.service.audit import entry


class Backup:
    """The use-case."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def make(self) -> BinaryIO:
        """An open file that has no name; close it. Raises ServiceUnavailable."""
        with errors.store_in_words():
            self._store.audit.append([entry(self._clock, "backup")])
            return self._store.backup()
