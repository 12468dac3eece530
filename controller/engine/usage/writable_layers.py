"""Sizes of writable layers, measured by a background job, never by a scrape.

Where the engine names no folder of a layer (the containerd image store, another storage driver, another machine), the
engine is asked for the size: it walks the layer itself, so a slow answer is given up.

A layer's content is hostile. Each folder is opened by name in its parent, never through a link, so nothing outside is
read. A tree that is too large is not measured at all, rather than by half.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from controller.engine.docker.errors import Fault
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import LayerUsage
from controller.ports import Clock

_log = structlog.get_logger("paddock.engine")
LAYERS_SECONDS = 15.0
MEASURE_SECONDS = 60.0
# Longest share of a CPU for a walk: a slow one is repeated later.
_SHARE = 0.01
# Longest wait for the engine's own walk.
ENGINE_SECONDS = 5.0
# About 0.1 s for 20,000 entries.
_MOST_ENTRIES = 500_000
_MOST_DEPTH = 200
_LIVE = (State.RUNNING, State.PAUSED)
_BLOCK_BYTES = 512


class TooMuch(Exception):
    """The tree has too many entries, or is too deep."""


@dataclass(slots=True)
class _Measured:
    layer: LayerUsage
    due: float


class WritableLayers:
    """Writable layers by container id: `measure` runs every LAYERS_SECONDS, `now` returns its results.

    Thread-safe. `ticks` is a monotonic clock in seconds. `reported` is the size of a container's layer by the engine,
    within some seconds; it raises Fault.
    """

    def __init__(
        self,
        containers: Callable[[], Iterable[Container]],
        clock: Clock,
        ticks: Callable[[], float],
        reported: Callable[[str, float], int],
    ) -> None:
        self._containers, self._clock, self._ticks, self._reported = containers, clock, ticks, reported
        self._lock = threading.Lock()
        self._known: dict[str, _Measured] = {}

    def now(self) -> Mapping[str, LayerUsage]:
        """Return the sizes by container id, and why those are unknown that could not be measured."""
        return {id_: measurement.layer for id_, measurement in self._known.items()}

    def measure(self) -> None:
        """Measure running containers that are due; forget stopped ones."""
        with self._lock:
            live = [container for container in self._containers() if container.state in _LIVE]
            measurements = {
                container.id: self._known[container.id] for container in live if container.id in self._known
            }
            for container in live:
                measurement = measurements.get(container.id)
                if measurement is None or self._clock.now() >= measurement.due:
                    measured = self._measure(container)
                    if measured is not None:
                        measurements[container.id] = measured
            self._known = measurements

    def _measure(self, container: Container) -> _Measured | None:
        """Return the size of one; None for a container that is gone."""
        started, at = self._ticks(), self._clock.now()
        try:
            layer = LayerUsage(self._bytes(container), at)
        except TooMuch as error:
            layer = LayerUsage(None, at, str(error))
        except Fault as fault:
            if fault.is_gone:
                return None
            slow = f"the engine did not tell its size within {ENGINE_SECONDS:g} s"
            layer = LayerUsage(None, at, slow if fault.kind == "timeout" else fault.message)
        if layer.trouble:
            _log.info("writable layer not measured", container=container.name, reason=layer.trouble)
        return _Measured(layer, at + max(MEASURE_SECONDS, (self._ticks() - started) / _SHARE))

    def _bytes(self, container: Container) -> int:
        """Return its size. Raises TooMuch, Fault."""
        if container.layer_path:
            try:
                return tree_bytes(container.layer_path)
            except OSError as error:  # just removed, or the engine is on another host
                _log.debug("writable layer unreadable", container=container.name, reason=str(error))
        return self._reported(container.id, ENGINE_SECONDS)


def tree_bytes(path: str) -> int:
    """Return the disk usage below `path`, hard links counted once. Raises OSError, TooMuch."""
    walk = _Walk()
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        walk.folder(handle, 1)
    finally:
        os.close(handle)
    return walk.blocks * _BLOCK_BYTES


class _Walk:
    def __init__(self) -> None:
        self.blocks, self._entries = 0, 0
        self._linked: set[tuple[int, int]] = set()

    def folder(self, handle: int, depth: int) -> None:
        if depth > _MOST_DEPTH:
            raise TooMuch(f"its folders are nested more than {_MOST_DEPTH} deep")
        inner = []
        with os.scandir(handle) as entries:
            for entry in entries:
                self._count(entry)
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.name)
        for name in inner:
            self._below(handle, name, depth)

    def _below(self, handle: int, name: str, depth: int) -> None:
        try:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        except OSError:  # removed or replaced meanwhile
            return
        try:
            self.folder(below, depth + 1)
        finally:
            os.close(below)

    def _count(self, entry: "os.DirEntry[str]") -> None:
        self._entries += 1
        if self._entries > _MOST_ENTRIES:
            raise TooMuch(f"it has more than {_MOST_ENTRIES} files")
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
            key = (status.st_dev, status.st_ino)
            if key in self._linked:
                return
            self._linked.add(key)
        self.blocks += status.st_blocks
