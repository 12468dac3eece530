"""Ends all that a command started in a box, by what the host's /proc shows: no tool of the image is asked.

The engine can't kill an exec, and a process that wants to outlive its command leaves its group (setpgid), its session
(setsid) and even the mark in its environment (`env -i`). So first all that can be told to be the command's is killed,
again and again while it forks; what may be its own, but can't be told, is counted: the box has to go with it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.engine.kernel.cgroups import Cgroups, Unreadable, folder_of, holds

MARK = "PADDOCK_EXEC"
_ROUNDS = 20
_PAUSE_SECONDS = 0.005


def ticks_now() -> int:
    """The time on the clock that processes' times of start are told by, rounded down."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


@dataclass(frozen=True, slots=True)
class Process:
    """A process as the host sees it; `started` is in ticks since boot."""

    pid: int
    parent: int
    session: int
    started: int


@dataclass(frozen=True, slots=True)
class Target:
    """A command in a box: the pid that leads its session (0: not known), its mark, and since when it may run."""

    container_id: str
    init_pid: int
    leader: int
    mark: str
    since_ticks: int


class Killer:
    """Works where the daemon is root on the engine's host; elsewhere it finds nothing, and says so by `False`."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups

    @property
    def proc(self) -> Path:
        """Where processes are told of."""
        return self._cgroups.proc

    def end(self, target: Target) -> bool:
        """Kill what is the command's. False: some of it is still there, or the box can't be looked into."""
        if target.leader:
            signal_group(target.leader, target.container_id, signal.SIGKILL, self._cgroups.proc)
        own: list[Process] = []
        for _ in range(_ROUNDS):
            try:
                found = self._processes(target)
            except Unreadable:
                return False
            own = [each for each in found if self._is_its_own(each, target)]
            if not own and not any(self._is_untold(each, target) for each in found):
                return True
            for each in own:
                kill(each, self._cgroups.proc)
            time.sleep(_PAUSE_SECONDS)
        return not own

    def alive(self, target: Target) -> bool:
        """Whether any of the command's processes is still there, as far as the box can be looked into."""
        try:
            return any(self._is_its_own(each, target) for each in self._processes(target))
        except Unreadable:
            return False

    def doubtful(self, target: Target) -> int:
        """How many processes may be the command's, though nothing tells: they began after it, on nobody's behalf.

        That is: they were left to the box's first process by whoever started them, and left their session too.
        """
        try:
            found = {each.pid: each for each in self._processes(target)}
        except Unreadable:
            return 0
        init = found.get(target.init_pid)
        if init is None:
            return 0
        young = (each for each in found.values() if each.started >= target.since_ticks)
        return sum(self._is_nobodys(each, found, init) for each in young)

    def _is_its_own(self, process: Process, target: Target) -> bool:
        if process.pid == target.init_pid:
            return False
        led = target.leader and process.session == target.leader and process.started >= target.since_ticks
        return bool(led) or f"{MARK}={target.mark}".encode() in self._environment(process.pid)

    def _is_untold(self, process: Process, target: Target) -> bool:
        """Whether it may turn out to be the command's: one that is becoming another program has no environment yet.

        One that was started without any never has; `doubtful` tells of it.
        """
        young = process.pid != target.init_pid and process.started >= target.since_ticks
        return young and not self._environment(process.pid)

    def _is_nobodys(self, process: Process, found: Mapping[int, Process], init: Process) -> bool:
        """Whether its eldest ancestor is a child of init in another session, and not of an exec that bears a mark."""
        if any(each.startswith(f"{MARK}=".encode()) for each in self._environment(process.pid)):
            return False
        eldest = process
        while eldest.parent in found and eldest.parent != init.pid:
            eldest = found[eldest.parent]
        return eldest.parent == init.pid and eldest.session != init.session

    def _processes(self, target: Target) -> list[Process]:
        """All living processes of the box. Raises Unreadable."""
        try:
            paths = (self._cgroups.proc / str(target.init_pid) / "cgroup").read_text()
        except OSError as error:
            raise Unreadable(f"the box's first process is gone: {error}") from error
        folder = folder_of(self._cgroups.folders(paths, target.container_id), "pids").path
        found = (process_of(self._cgroups.proc, pid) for pid in set(_pids(Path(folder))))
        return [each for each in found if each is not None]

    def _environment(self, pid: int) -> frozenset[bytes]:
        """Empty for one that has ended. Its first thread may have, and the others not: they tell as well."""
        folder = self._cgroups.proc / str(pid)
        for each in (folder, *_threads(folder)):
            with contextlib.suppress(OSError):
                if found := (each / "environ").read_bytes():
                    return frozenset(found.split(b"\0"))
        return frozenset()


def kill(process: Process, proc: Path) -> bool:
    """Kill it, unless its pid is another's by now."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            if process_of(proc, process.pid) == process:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
    return False


def signal_group(pid: int, container_id: str, number: int, proc: Path) -> bool:
    """Send a signal to the process group that `pid` leads, if it still runs in that container."""
    try:
        if not holds(pid, container_id, proc):
            return False
        os.killpg(pid, number)
    except OSError:
        return False
    return True


def _pids(folder: Path) -> Iterator[int]:
    """The pids in a cgroup and in those below it."""
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            yield from map(int, (Path(place) / "cgroup.procs").read_text().split())


def _threads(process: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (process / "task").iterdir()


def process_of(proc: Path, pid: int) -> Process | None:
    """None for one that has ended."""
    try:
        # Bytes: a process gives itself any name that it likes, and names are cut where they are too long.
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    # One whose memory is gone is as good as dead: it has let go of its environment, and can't be told by that any more.
    # But a process whose first thread has ended (a zombie, without memory) goes on as long as it has others.
    if (fields[0] in (b"Z", b"X") or fields[20] == b"0") and int(fields[17]) <= 1:
        return None
    return Process(pid, parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))
