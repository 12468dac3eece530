"""Frees an engine that waits for ever for a command: one that was just beginning in a box when the box was paused.

The runtime's process outside waits for its half inside, which is frozen; the engine waits for the runtime, and answers
no inspect, no unpause and no removal of that box any more (20.10 does; 26.1 does not). Whatever paused the box may do
that: a hand, `docker commit`. When the runtime's process is killed, the engine calls that command failed, and all that
waited goes on; the box stays paused.
"""

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from controller.engine.exec.kill import Process, kill, process_of, ticks_now
from controller.engine.kernel.cgroups import Cgroups, Unreadable, folder_of, holds

log = logging.getLogger(__name__)
# Longer than a runtime takes to begin a command on a loaded host, should it be paused for a moment only.
_PATIENCE_SECONDS = 1.0
_ID = re.compile("[0-9a-f]{64}")
# How the engine's runtime begins a command. Without the last word it goes on as long as its command: it is a hand's.
_BEGINS = frozenset((b"exec", b"--detach"))


class Freer:
    """Works where the daemon is root on the engine's host, as killing.Killer does; elsewhere it finds nothing."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}

    def soon(self, container_id: str, stands: Callable[[str], bool]) -> None:
        """Free it once a command that is beginning just now has waited long enough, if the engine `stands` then."""
        with self._lock:
            first = not self._due
            self._due[container_id] = time.monotonic() + 2 * _PATIENCE_SECONDS
        if first:
            threading.Thread(target=self._free_due, args=(stands,), name="engine-free", daemon=True).start()

    def _free_due(self, stands: Callable[[str], bool]) -> None:
        """One after another, until there are no more."""
        while (each := self._next()) is not None:
            container_id, due = each
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if self._waiting(container_id) and stands(container_id):
                    self.free(container_id)
            except Exception:  # a bug must not end this for all others
                log.exception("whether the engine waits for container %s can't be told", container_id[:12])
            with self._lock:
                if self._due[container_id] == due:
                    del self._due[container_id]

    def _next(self) -> tuple[str, float] | None:
        with self._lock:
            return min(self._due.items(), key=lambda each: each[1], default=None)

    def free(self, container_id: str) -> int:
        """Kill the runtime's processes that wait for a frozen half; how many there were."""
        freed = sum(kill(each, self._cgroups.proc) for each in self._waiting(container_id))
        if freed:
            log.warning(
                "container %s was paused just as a command began in it, and the engine waited for that command; it was"
                " ended (%d processes of the container runtime)",
                *(container_id[:12], freed),
            )
        return freed

    def _waiting(self, container_id: str) -> list[Process]:
        if not _ID.fullmatch(container_id):
            return []
        try:
            return [each for each in self._outside(container_id) if self._waits(each, container_id)]
        except OSError as error:  # this process may have as many files open as it may
            log.warning("whether the engine waits for container %s can't be told: %s", container_id[:12], error)
            return []

    def _outside(self, container_id: str) -> Iterator[Process]:
        """The runtime's processes that begin a command in that container: its id is a word of their command line."""
        for each in _pids(self._cgroups.proc):
            with contextlib.suppress(OSError):
                words = (self._cgroups.proc / str(each) / "cmdline").read_bytes().split(b"\0")
                if container_id.encode() in words and _BEGINS.issubset(words):
                    found = process_of(self._cgroups.proc, each)
                    if found is not None:
                        yield found

    def _waits(self, process: Process, container_id: str) -> bool:
        """Whether it has waited long enough, and its half in the container is frozen."""
        waited = (ticks_now() - process.started) / os.sysconf("SC_CLK_TCK")
        if waited < _PATIENCE_SECONDS or holds(process.pid, container_id, self._cgroups.proc):
            return False
        halves = (each for each in self._children(process.pid) if holds(each, container_id, self._cgroups.proc))
        return any(self._is_frozen(each, container_id) for each in halves)

    def _children(self, pid: int) -> Iterator[int]:
        for each in _pids(self._cgroups.proc):
            found = process_of(self._cgroups.proc, each)
            if found is not None and found.parent == pid:
                yield each

    def _is_frozen(self, pid: int, container_id: str) -> bool:
        try:
            paths = (self._cgroups.proc / str(pid) / "cgroup").read_text()
            folder = folder_of(self._cgroups.folders(paths, container_id), "freezer")
            if folder.version == 1:
                return Path(folder.path, "freezer.state").read_text().strip() == "FROZEN"
            return "frozen 1" in Path(folder.path, "cgroup.events").read_text().splitlines()
        except (OSError, ValueError, Unreadable):
            return False


def _pids(proc: Path) -> Iterator[int]:
    return (int(each.name) for each in proc.iterdir() if each.name.isdigit())
