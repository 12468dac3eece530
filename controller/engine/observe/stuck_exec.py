"""Recovery from stuck execs: kill the container runtime (`runc`) that the engine waits for in vain.

The engine locks a container while its runtime starts a command or the container itself. Meanwhile it answers no
inspect, no kill and no removal of that container. The runtime never returns in these cases:

- Its child inside is frozen: the sandbox was paused during the exec start (20.10 waits then; 26.1 does not).
- Its error is longer than a pipe that the engine reads only after the exit. A program name or a working directory of
  65,536 bytes is enough.
- Its child inside is blocked by the sandbox's own processes (stopped by a signal), or by a file system that hangs.

Once the runtime is killed, the engine reports that command as failed and unlocks the container. `PauseGuard`
prevents the first case where Paddock itself pauses.
"""

import contextlib
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controller.engine.kernel.cgroups import Cgroups, Unreadable, folder_of, holds
from controller.engine.kernel.kill import Process, kill, process_of, ticks_now

log = logging.getLogger(__name__)
# Longer than an exec start takes on a loaded host, even with a short pause in between.
_MAX_WAIT_SECONDS = 1.0
# No exec start takes so long, whatever blocks it.
_OVERDUE_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
# A pause and an exec start wait for each other at most so long.
_GUARD_SECONDS = 10.0
_ID = re.compile("[0-9a-f]{64}")
# The engine's runtime has both arguments. Without --detach it is an operator's, and runs as long as its command.
_BEGINS = frozenset((b"exec", b"--detach"))


# Tells whether the command of a runtime has started.
Begun = Callable[[], bool]


@dataclass(slots=True)
class _Watched:
    """A container to check when it is `due` (time.monotonic), until all its `beginnings` have started."""

    due: float
    hangs: Callable[[str], bool]
    beginnings: list[Begun]


class PauseGuard:
    """Exec starts wait for a running pause, a pause waits for exec starts; both for a bounded time. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commands, self._pauses = Counter[str](), Counter[str]()

    @contextmanager
    def command(self, container_id: str) -> Iterator[None]:
        """Held while a command in that container is started."""
        with self._count(self._commands, container_id, unless=self._pauses):
            yield

    @contextmanager
    def pause(self, container_id: str) -> Iterator[None]:
        """Held while that container is paused. No new command starts meanwhile."""
        with self._count(self._pauses, container_id, unless=Counter()):
            with self._changed:
                self._changed.wait_for(lambda: not self._commands[container_id], _GUARD_SECONDS)
            yield

    @contextmanager
    def _count(self, counter: Counter[str], container_id: str, *, unless: Counter[str]) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not unless[container_id], _GUARD_SECONDS)
            counter[container_id] += 1
        try:
            yield
        finally:
            with self._changed:
                counter[container_id] -= 1
                if not counter[container_id]:
                    del counter[container_id]
                self._changed.notify_all()


class StuckExecWatch:
    """Watch of exec starts. Works as root on the engine's host; elsewhere it finds nothing."""

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

    def soon(self, container_id: str, hangs: Callable[[str], bool], has_begun: Begun = lambda: False) -> None:
        """Check the container soon: kill its stuck runtime if the engine `hangs`, unless the command `has_begun`."""
        with self._lock:
            due = time.monotonic() + 2 * _MAX_WAIT_SECONDS
            self._watched.setdefault(container_id, _Watched(due, hangs, [])).beginnings.append(has_begun)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="engine-free", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        """Check the containers as they become due, until none remains."""
        while (due := self._next()) is not None:
            container_id, watched = due
            with self._lock:
                beginnings, watched.beginnings = watched.beginnings, []
            try:
                pending = self._look(container_id, watched.hangs, beginnings)
            except Exception:  # a bug must not end the watch of all others
                log.exception("stuck exec check failed for container %s", container_id[:12])
                pending = []
            with self._lock:
                watched.beginnings += pending
                watched.due = time.monotonic() + _AGAIN_SECONDS
                if not watched.beginnings:
                    del self._watched[container_id]

    def _next(self) -> tuple[str, _Watched] | None:
        while True:
            with self._lock:
                if not self._watched or self._closing.is_set():
                    self._thread = None
                    return None
                container_id, watched = min(self._watched.items(), key=lambda entry: entry[1].due)
                seconds = watched.due - time.monotonic()
            if seconds <= 0:
                return container_id, watched
            self._closing.wait(seconds)

    def _look(self, container_id: str, hangs: Callable[[str], bool], beginnings: list[Begun]) -> list[Begun]:
        """Kill a stuck runtime; return the starts that are still pending."""
        pending = [has_begun for has_begun in beginnings if not has_begun()]
        if not pending:
            return []
        runtimes = self._runtimes(container_id)
        # An engine that does not hang needs no help, unless the runtime itself waits.
        waits = hangs(container_id)
        self._end([runtime for runtime in runtimes if self._waits(runtime, container_id, hangs=waits)], container_id)
        return pending if runtimes else []

    def free(self, container_id: str) -> int:
        """Kill the stuck runtimes of a container; return their number."""
        runtimes = self._runtimes(container_id)
        return self._end(
            [runtime for runtime in runtimes if self._waits(runtime, container_id, hangs=True)], container_id
        )

    def _end(self, stuck: list[Process], container_id: str) -> int:
        freed = sum(kill(process, self._cgroups.proc) for process in stuck)
        if freed:
            log.warning(
                "container %s: stuck runtime killed (%d processes); the command that it was starting failed",
                *(container_id[:12], freed),
            )
        return freed

    def _runtimes(self, container_id: str) -> list[Process]:
        if not _ID.fullmatch(container_id):
            return []
        try:
            return list(self._outside(container_id))
        except OSError as error:  # this process may have as many files open as it may
            log.warning("stuck exec check failed for container %s: %s", container_id[:12], error)
            return []

    def _outside(self, container_id: str) -> Iterator[Process]:
        """Yield the runtime's processes that start a command in that container: its id is one of their arguments.

        A sandbox's process can fake its command line, but is not in the host's pid namespace.
        """
        own_namespace = self._namespace("self")
        for pid in _pids(self._cgroups.proc):
            with contextlib.suppress(OSError):
                arguments = (self._cgroups.proc / str(pid) / "cmdline").read_bytes().split(b"\0")
                begins = container_id.encode() in arguments and _BEGINS.issubset(arguments)
                if begins and self._namespace(str(pid)) == own_namespace:
                    process = process_of(self._cgroups.proc, pid)
                    if process is not None and not holds(pid, container_id, self._cgroups.proc):
                        yield process

    def _namespace(self, process: str) -> str:
        """Return the pid namespace of a process; "" if unknown."""
        try:
            return os.readlink(self._cgroups.proc / process / "ns/pid")
        except OSError:
            return ""

    def _waits(self, process: Process, container_id: str, *, hangs: bool) -> bool:
        """Tell whether it has waited long enough, and is stuck; `hangs`: the engine waits for it."""
        waited = (ticks_now() - process.started) / os.sysconf("SC_CLK_TCK")
        if waited < _MAX_WAIT_SECONDS:
            return False
        halves = list(self._halves(process.pid, container_id))
        if not halves and self._writes(process.pid):
            return True
        return hangs and (waited >= _OVERDUE_SECONDS or any(self._is_frozen(half.pid, container_id) for half in halves))

    def _writes(self, pid: int) -> bool:
        """Tell whether one of its threads blocks at a pipe. With its child gone, that is the pipe of its error."""
        for wait_channel in (self._cgroups.proc / str(pid) / "task").glob("*/wchan"):
            with contextlib.suppress(OSError):
                if "pipe" in wait_channel.read_text():
                    return True
        return False

    def _halves(self, pid: int, container_id: str) -> Iterator[Process]:
        """Yield its child processes inside the container."""
        for child in self._children(pid):
            if holds(child.pid, container_id, self._cgroups.proc):
                yield child

    def _children(self, pid: int) -> Iterator[Process]:
        for child_pid in _pids(self._cgroups.proc):
            process = process_of(self._cgroups.proc, child_pid)
            if process is not None and process.parent == pid:
                yield process

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
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
