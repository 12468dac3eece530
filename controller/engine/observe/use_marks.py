"""Marks of use: the ids of claimed containers that were used before they had the name of their sandbox.

A store that lost its last commits takes a claimed member for a warm one. The name of its container shows the claim, but
only some time after it. The marks are outside of any store, and on disk before the use: a power cut loses none.
"""

import os
import threading
from collections.abc import Set as AbstractSet
from pathlib import Path


class UseMarks:
    """Marks in a folder of this host, an empty file each. Any thread may use it; the constructor does no I/O."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._ids: set[str] | None = None

    def add(self, container_id: str) -> None:
        """Mark a container. Raises OSError."""
        with self._lock:
            if container_id in self._read():
                return
        _make_folders(self._folder)
        _sync(self._folder / container_id, os.O_WRONLY | os.O_CREAT)  # no lock: a slow disk delays no observation
        _sync(self._folder, os.O_DIRECTORY)
        with self._lock:
            self._read().add(container_id)

    def has(self, container_id: str) -> bool:
        """Return True for a marked container, and for any while the marks can't be read."""
        try:
            with self._lock:
                return container_id in self._read()
        except OSError:
            return True

    def ids(self) -> frozenset[str]:
        """Return the ids of all marked containers. Raises OSError."""
        with self._lock:
            return frozenset(self._read())

    def remove(self, container_ids: AbstractSet[str]) -> None:
        """Remove the marks of containers that are gone. Raises OSError."""
        with self._lock:
            for container_id in container_ids & self._read():
                (self._folder / container_id).unlink(missing_ok=True)
                self._read().discard(container_id)

    def _read(self) -> set[str]:
        if self._ids is None:
            self._ids = {mark.name for mark in self._folder.iterdir()} if self._folder.is_dir() else set()
        return self._ids


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing, so that a power cut loses none."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent, os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
