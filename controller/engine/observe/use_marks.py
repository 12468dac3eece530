"""Marks of use: the ids of claimed containers that were used before they had the name of their sandbox.

A store restored from a backup takes a claimed member for a warm one. The name of its container shows the claim, but
only some time after it. The marks are outside of any store, and go with the host's start, as mounts do.
"""

import threading
from pathlib import Path


class UseMarks:
    """Marks in a folder of this host, an empty file each. Any thread may use it; the constructor does no I/O."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._ids: set[str] | None = None

    def add(self, container_id: str) -> None:
        """Mark a container. Raises OSError."""
        with self._lock:
            ids = self._read()
            if container_id not in ids:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._folder / container_id).touch(mode=0o600)
                ids.add(container_id)

    def has(self, container_id: str) -> bool:
        """Tell whether a container is marked, or may be: the marks can't be read."""
        try:
            with self._lock:
                return container_id in self._read()
        except OSError:
            return True

    def remove(self, container_id: str) -> None:
        """Remove the mark of a container that is gone. Raises OSError."""
        with self._lock:
            ids = self._read()
            if container_id in ids:
                (self._folder / container_id).unlink(missing_ok=True)
                ids.discard(container_id)

    def _read(self) -> set[str]:
        if self._ids is None:
            self._ids = {mark.name for mark in self._folder.iterdir()} if self._folder.is_dir() else set()
        return self._ids
