"""Frees an engine that waits for ever for a container runtime (`runc`), by ending that runtime's process.

The engine holds a container's lock while its runtime begins a command or the container itself. It answers no inspect,
no kill and no removal of that container meanwhile. The runtime never comes back in these cases:

- Its half inside is frozen: the sandbox was paused just as a command began in it (20.10 waits then; 26.1 does not).
- It can't tell its error: the text is longer than the pipe which nobody reads before the runtime has ended. A program
  name or a working directory of 65,536 bytes is enough.
- Its half inside is held up by the sandbox's own processes (stopped by a signal), or by a file system that hangs.

When the process is killed, the engine calls that command failed, and all that waited goes on.
"""

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.engine.exec.kill import Process, kill, process_of, ticks_now
from controller.engine.kernel.cgroups import Cgroups, Unreadable, folder_of, holds

log = logging.getLogger(__name__)
# Longer than a runtime takes to begin a command on a loaded host, should it be paused for a moment only.
_PATIENCE_SECONDS = 1.0
# No runtime takes so long to begin a command; what holds it up need not be known.
_OVERDUE_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
_ID = re.compile("[0-9a-f]{64}")
# How the engine's runtime begins a command. Without the last word it goes on as long as its command: it is a hand's.
_BEGINS = frozenset((b"exec", b"--detach"))


# Asks whether what a runtime was called for has begun.
Begun = Callable[[], bool]


@dataclass(slots=True)
class _Watched:
    """A container to be looked at when it is `due` (time.monotonic), while any of `beginnings` has not begun."""

    due: float
    hangs: Callable[[str], bool]
    beginnings: list[Begun]


class Freer:
    """Works where the daemon is root on the engine's host, as killing.Killer does; elsewhere it finds nothing."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def close(self) -> None:
        """Stop watching. Returns once the thread has ended."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def soon(self, container_id: str, hangs: Callable[[str], bool], begun: Begun = lambda: False) -> None:
        """Free it once its runtime has waited long enough, if the engine `hangs` then, unless that has `begun`."""
        with self._lock:
            due = time.monotonic() + 2 * _PATIENCE_SECONDS
            self._watched.setdefault(container_id, _Watched(due, hangs, [])).beginnings.append(begun)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="engine-free", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        """One after another, until there are no more."""
        while (due := self._next()) is not None:
            container_id, watched = due
            with self._lock:
                asked, watched.beginnings = watched.beginnings, []
            try:
                left = self._look(container_id, watched.hangs, asked)
            except Exception:  # a bug must not end this for all others
                log.exception("whether the engine waits for container %s can't be told", container_id[:12])
                left = []
            with self._lock:
                watched.beginnings += left
                watched.due = time.monotonic() + _AGAIN_SECONDS
                if not watched.beginnings:
                    del self._watched[container_id]

    def _next(self) -> tuple[str, _Watched] | None:
        while True:
            with self._lock:
                if not self._watched or self._closing.is_set():
                    self._thread = None
                    return None
                container_id, watched = min(self._watched.items(), key=lambda each: each[1].due)
                seconds = watched.due - time.monotonic()
            if seconds <= 0:
                return container_id, watched
            self._closing.wait(seconds)

    def _look(self, container_id: str, hangs: Callable[[str], bool], asked: list[Begun]) -> list[Begun]:
        """Free it if it has to be; gives what has not begun, and may still begin."""
        left = [each for each in asked if not each()]
        if not left:
            return []
        runtimes = self._runtimes(container_id)
        # An engine that does not wait for its runtime needs no help, unless the command itself waits.
        waits = hangs(container_id)
        self._end([each for each in runtimes if self._waits(each, container_id, hangs=waits)], container_id)
        return left if runtimes else []

    def free(self, container_id: str) -> int:
        """Kill the runtime's processes that never come back; how many there were."""
        runtimes = self._runtimes(container_id)
        return self._end([each for each in runtimes if self._waits(each, container_id, hangs=True)], container_id)

    def _end(self, stuck: list[Process], container_id: str) -> int:
        freed = sum(kill(each, self._cgroups.proc) for each in stuck)
        if freed:
            log.warning(
                "container %s: the engine waited for a container runtime that did not come back; it was ended"
                " (%d processes), and what it was to begin has failed",
                *(container_id[:12], freed),
            )
        return freed

    def _runtimes(self, container_id: str) -> list[Process]:
        if not _ID.fullmatch(container_id):
            return []
        try:
            return list(self._outside(container_id))
        except OSError as error:  # this process may have as many files open as it may
            log.warning("whether the engine waits for container %s can't be told: %s", container_id[:12], error)
            return []

    def _outside(self, container_id: str) -> Iterator[Process]:
        """The runtime's processes that begin something for that container: its id is a word of their command line.

        What runs in a sandbox says of itself what it likes, but not in the host's process namespace.
        """
        own = self._namespace("self")
        for each in _pids(self._cgroups.proc):
            with contextlib.suppress(OSError):
                words = (self._cgroups.proc / str(each) / "cmdline").read_bytes().split(b"\0")
                begins = container_id.encode() in words and _BEGINS.issubset(words)
                if begins and self._namespace(str(each)) == own:
                    found = process_of(self._cgroups.proc, each)
                    if found is not None and not holds(each, container_id, self._cgroups.proc):
                        yield found

    def _namespace(self, process: str) -> str:
        """The namespace of process ids that it is in; "" where the kernel does not tell."""
        try:
            return os.readlink(self._cgroups.proc / process / "ns/pid")
        except OSError:
            return ""

    def _waits(self, process: Process, container_id: str, *, hangs: bool) -> bool:
        """Tell whether it has waited long enough, and never comes back; `hangs`: the engine waits for it."""
        waited = (ticks_now() - process.started) / os.sysconf("SC_CLK_TCK")
        if waited < _PATIENCE_SECONDS:
            return False
        halves = list(self._halves(process.pid, container_id))
        if not halves and self._writes(process.pid):
            return True
        return hangs and (waited >= _OVERDUE_SECONDS or any(self._is_frozen(each.pid, container_id) for each in halves))

    def _writes(self, pid: int) -> bool:
        """Tell whether one of its threads waits in the kernel at a pipe. With its half gone, that is its error's."""
        for each in (self._cgroups.proc / str(pid) / "task").glob("*/wchan"):
            with contextlib.suppress(OSError):
                if "pipe" in each.read_text():
                    return True
        return False

    def _halves(self, pid: int, container_id: str) -> Iterator[Process]:
        """Its processes inside the container."""
        for each in self._children(pid):
            if holds(each.pid, container_id, self._cgroups.proc):
                yield each

    def _children(self, pid: int) -> Iterator[Process]:
        for each in _pids(self._cgroups.proc):
            found = process_of(self._cgroups.proc, each)
            if found is not None and found.parent == pid:
                yield found

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
