"""Kill of all processes that an exec started, found in the host's /proc without any tool of the image.

The engine can't kill an exec. A process can outlive its command by leaving its group (setpgid), its session (setsid)
and even the mark in its environment (`env -i`). All processes known to be the command's are killed, repeatedly while
they fork. Processes that may be its own are counted: only stopping the sandbox ends those for certain.
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
    """Return the time on the clock of process start times, rounded down."""
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
    """An exec to kill: the pid of its session leader (0: unknown), its mark, and its earliest start."""

    container_id: str
    init_pid: int
    leader: int
    mark: str
    since_ticks: int


class Killer:
    """Killer of execs. Works as root on the engine's host; elsewhere it finds nothing and returns False."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups

    @property
    def proc(self) -> Path:
        """Mount point of procfs."""
        return self._cgroups.proc

    def end(self, target: Target) -> bool:
        """Kill the command's processes. False if some remain, or the sandbox's processes can't be read."""
        if target.leader:
            signal_group(target.leader, target.container_id, signal.SIGKILL, self._cgroups.proc)
        own_processes: list[Process] = []
        for _ in range(_ROUNDS):
            try:
                processes = self._processes(target)
            except Unreadable:
                return False
            own_processes = [process for process in processes if self._is_its_own(process, target)]
            if not own_processes and not any(self._may_be_its_own(process, target) for process in processes):
                return True
            for process in own_processes:
                kill(process, self._cgroups.proc)
            time.sleep(_PAUSE_SECONDS)
        return not own_processes

    def hang_up(self, target: Target) -> None:
        """Send SIGHUP to the processes of the command's session, stopped ones too. Others of the command run on."""
        with contextlib.suppress(Unreadable):
            for process in self._processes(target):
                if target.leader and process.session == target.leader and process.started >= target.since_ticks:
                    kill(process, self._cgroups.proc, signal.SIGHUP)
                    kill(process, self._cgroups.proc, signal.SIGCONT)

    def alive(self, target: Target) -> bool:
        """Tell whether any of the command's processes still runs, as far as they can be read."""
        try:
            return any(self._is_its_own(process, target) for process in self._processes(target))
        except Unreadable:
            return False

    def leader(self, target: Target) -> int:
        """Return the pid of the first session leader among the command's processes; 0 if there is none."""
        try:
            processes = sorted(self._processes(target), key=lambda process: process.started)
        except Unreadable:
            return 0
        return next(
            (
                process.pid
                for process in processes
                if process.pid == process.session and self._is_its_own(process, target)
            ),
            0,
        )

    def possible_escapes(self, target: Target) -> int:
        """Count processes that may be the command's: younger orphans.

        Their parent has ended, so that init adopted them, and they have left their session, too.
        """
        try:
            processes = {process.pid: process for process in self._processes(target)}
        except Unreadable:
            return 0
        init = processes.get(target.init_pid)
        if init is None:
            return 0
        young = (process for process in processes.values() if process.started >= target.since_ticks)
        return sum(self._is_orphan(process, processes, init) for process in young)

    def _is_its_own(self, process: Process, target: Target) -> bool:
        if process.pid == target.init_pid:
            return False
        led = target.leader and process.session == target.leader and process.started >= target.since_ticks
        return bool(led) or f"{MARK}={target.mark}".encode() in self._environment(process.pid)

    def _may_be_its_own(self, process: Process, target: Target) -> bool:
        """Tell whether it may be the command's: during execve a process has no environment.

        A process that was started without any never has one; `possible_escapes` counts it.
        """
        young = process.pid != target.init_pid and process.started >= target.since_ticks
        return young and not self._environment(process.pid)

    def _is_orphan(self, process: Process, processes: Mapping[int, Process], init: Process) -> bool:
        """Tell whether its eldest ancestor is a child of init in another session, and no exec with a mark."""
        if any(variable.startswith(f"{MARK}=".encode()) for variable in self._environment(process.pid)):
            return False
        eldest = process
        while eldest.parent in processes and eldest.parent != init.pid:
            eldest = processes[eldest.parent]
        return eldest.parent == init.pid and eldest.session != init.session

    def _processes(self, target: Target) -> list[Process]:
        """Return all living processes of the sandbox. Raises Unreadable."""
        try:
            paths = (self._cgroups.proc / str(target.init_pid) / "cgroup").read_text()
        except OSError as error:
            raise Unreadable(f"the sandbox's first process is gone: {error}") from error
        folder = folder_of(self._cgroups.folders(paths, target.container_id), "pids").path
        processes = (process_of(self._cgroups.proc, pid) for pid in set(_pids(Path(folder))))
        return [process for process in processes if process is not None]

    def _environment(self, pid: int) -> frozenset[bytes]:
        """Return a process's environment; empty once it has ended. Other threads are read if the first has ended."""
        folder = self._cgroups.proc / str(pid)
        for place in (folder, *_threads(folder)):
            with contextlib.suppress(OSError):
                if environment := (place / "environ").read_bytes():
                    return frozenset(environment.split(b"\0"))
        return frozenset()


def kill(process: Process, proc: Path, number: signal.Signals = signal.SIGKILL) -> bool:
    """Kill it, or send it another signal, unless its pid was reused."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            if process_of(proc, process.pid) == process:
                signal.pidfd_send_signal(handle, number)
                return True
        finally:
            os.close(handle)
    return False


def signal_group(pid: int, container_id: str, number: int, proc: Path) -> bool:
    """Send a signal to the process group of `pid`, if it still runs in that container."""
    try:
        if not holds(pid, container_id, proc):
            return False
        os.killpg(pid, number)
    except OSError:
        return False
    return True


def _pids(folder: Path) -> Iterator[int]:
    """Yield the pids in a cgroup and below it."""
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            yield from map(int, (Path(place) / "cgroup.procs").read_text().split())


def _threads(process: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (process / "task").iterdir()


def process_of(proc: Path, pid: int) -> Process | None:
    """Read a process; None once it has ended."""
    try:
        # Bytes: a process may choose any name, and long names are cut anywhere.
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    # A process without memory is as good as dead, and has no environment to identify it by.
    # But a process whose first thread has ended (a zombie, without memory) runs on while it has others.
    if (fields[0] in (b"Z", b"X") or fields[20] == b"0") and int(fields[17]) <= 1:
        return None
    return Process(pid, parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))
