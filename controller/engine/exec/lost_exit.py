"""Exits of commands that the engine has lost, because the shim or containerd was killed while they ran.

Its inspect then says Running with a dead process for ever, or knows the exec no more, and the attached stream never
ends. The host's /proc tells that the process is gone. Where it can't be read, only the end of the container's run
tells.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.engine.docker.errors import Fault
from controller.engine.kernel.cgroups import holds
from controller.engine.kernel.kill import Process, process_of
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.adopted_exec import ExecRef

log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
# A healthy engine waits up to 2 s for the rest of the output, before it records an exit.
_LATE_SECONDS = 3.0
# It records the exits of a sandbox one after the other, and waits up to 4 s for output that a child left behind holds
# open: the command after some IDE's servers were left is answered so much later.
_QUEUED_SECONDS = 15.0
LOST = (
    "the command has ended, and its exit code is unknown: the engine lost it (its shim, containerd or the sandbox was "
    "killed); run it again"
)
Known = Callable[[str], Container | None]
_ENDED = (State.CREATED, State.EXITED, State.DEAD)


class ExitEvidence:
    """Evidence that the engine has lost the exit of one command. For one thread."""

    def __init__(self, ref: ExecRef, proc: Path, container_of: Known) -> None:
        """`container_of` returns the container as last observed, None if it never was."""
        self._ref, self._proc, self._known = ref, proc, container_of
        self._is_local = bool(ref.init_pid) and holds(ref.init_pid, ref.container_id, proc)
        self._leader: Process | None = None
        self._since: float | None = None

    @property
    def is_alive(self) -> bool:
        """True while its first process is seen, without a call of the engine."""
        alive = self._leader is not None and process_of(self._proc, self._leader.pid) == self._leader
        if alive:
            self._since = None
        return alive

    @property
    def run_has_ended(self) -> bool:
        """True once the sandbox's first process is seen to be gone."""
        return self._is_local and not holds(self._ref.init_pid, self._ref.container_id, self._proc)

    def is_lost(self, state: Mapping[str, Any] | None, now: float) -> bool:
        """Tell whether its exit is lost. `state` is the engine's answer: {} if it does not know it, None if unknown.

        `now` is monotonic.
        """
        if state is None:
            return False
        knows_better = bool(state) and not state.get("Running")  # its exit, or that it never started
        if knows_better or not self._has_no_process(int(state.get("Pid") or 0)):
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        late_seconds = _QUEUED_SECONDS if self._is_local and not self.run_has_ended else _LATE_SECONDS
        return now - self._since >= (late_seconds if state else 0.0)

    def _has_no_process(self, pid: int) -> bool:
        """Tell whether none can run; False if that is unknown, or it may not have started yet."""
        if self.is_alive:
            return False
        ref = self._ref
        if pid and self._leader is None and self._is_its_process(pid):
            self._leader = process_of(self._proc, pid)
            if self._leader is not None:
                self._is_local = True
                return False
        if self._is_local:
            return bool(pid or self._leader) or self.run_has_ended
        container = self._known(ref.container_id)
        return container is not None and (container.state in _ENDED or (0 < container.pid != ref.init_pid > 0))

    def _is_its_process(self, pid: int) -> bool:
        """Tell whether that is the command's process: in the sandbox, or begun for it outside of its cgroup.

        A runtime with a kernel of its own (gVisor) has only a process outside that waits for the command.
        """
        if holds(pid, self._ref.container_id, self._proc):
            return True
        process = process_of(self._proc, pid) if self._is_local else None
        return process is not None and process.started >= self._ref.since_ticks


@dataclass(slots=True)
class _WatchedCommand:
    evidence: ExitEvidence
    state: Callable[[], Mapping[str, Any]]
    has_ended: Callable[[], bool]
    is_stalled: Callable[[], bool]
    lost: Callable[[], None]


class LostExitWatch:
    """Watch of the commands that are waited for; its thread runs while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awaited: list[_WatchedCommand] = []
        self._runs = False
        self._closing = threading.Event()

    def add(
        self,
        evidence: ExitEvidence,
        state: Callable[[], Mapping[str, Any]],
        *,
        has_ended: Callable[[], bool],
        is_stalled: Callable[[], bool],
        lost: Callable[[], None],
    ) -> None:
        """Watch a command until `has_ended`. `state` inspects it (raises Fault); `lost` is called once it is lost.

        The engine can't end a container while somebody's output of it is not read: one that `is_stalled` is lost then.
        """
        with self._lock:
            self._awaited.append(_WatchedCommand(evidence, state, has_ended, is_stalled, lost))
            start, self._runs = not self._runs, True
        if start:
            threading.Thread(target=self._run, name="engine-lost-exits", daemon=True).start()

    def close(self) -> None:
        """End the watch."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            with self._lock:
                watched = list(self._awaited)
            over = {id(command) for command in watched if self._is_over(command)}
            with self._lock:
                self._awaited = [command for command in self._awaited if id(command) not in over]
                if not self._awaited:
                    self._runs = False
                    return

    def _is_over(self, command: _WatchedCommand) -> bool:
        if command.has_ended():
            return True
        if command.evidence.is_alive:
            return False
        if command.evidence.run_has_ended and command.is_stalled():
            command.lost()
            return True
        try:
            state: Mapping[str, Any] | None = command.state()
        except Fault as fault:
            state = {} if fault.is_gone else None
        except Exception:  # a bug must not end the watch of all others
            log.exception("lost exit check failed")
            return True
        if command.evidence.is_lost(state, time.monotonic()):
            command.lost()
            return True
        return False
