"""One command in a box, from its creation to its end: when its time is over, or its reader gone, it is killed."""

import logging
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import FOREIGN, Fault
from controller.engine.docker.raw_http import Wire
from controller.engine.exec.kill import MARK, Killer, Target, signal_group, ticks_now
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import StreamError

log = logging.getLogger(__name__)

TIMED_OUT = 124
# After the kill, what the dead left in the pipe is read for so long at most (a child may hold it open).
_LAST_WORDS_SECONDS = 1.0
_EXIT_SECONDS = 5.0
_START_SECONDS = 30.0
_POLL_SECONDS = (0.001, 0.02)  # the first pause and the longest
# A terminal's escape sequence can't be switched off: the engine holds back its first key until the next one is typed.
# Its default begins with Ctrl-P, which shells need; nothing needs these.
_DETACH_KEYS = "ctrl-^,ctrl-@,ctrl-^,ctrl-@"
# Called with a sentence when processes are left of which nobody can tell whose they are.
Escaped = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run, and where. `mark` makes its processes known to us: they inherit it."""

    container_id: str
    init_pid: int
    command: Sequence[str]
    env: Mapping[str, str]
    working_dir: str
    user: str
    stdin: bool
    tty: bool
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    since_ticks: int = field(default_factory=ticks_now)

    def body(self) -> dict[str, Any]:
        """The engine's request. Never privileged."""
        return {
            "Cmd": list(self.command),
            "Env": [*(f"{name}={value}" for name, value in self.env.items()), f"{MARK}={self.mark}"],
            "WorkingDir": self.working_dir,
            "User": self.user,
            "AttachStdin": self.stdin,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": self.tty,
            "DetachKeys": _DETACH_KEYS if self.tty else "",
            "Privileged": False,
        }


class Exec:
    """One running command: when its time is over it is killed; its exit code is asked for at the end."""

    def __init__(self, client: Client, killer: Killer, request: Request, exec_id: str, wire: Wire) -> None:
        self._client, self._killer, self._request = client, killer, request
        self._exec_id, self._wire = exec_id, wire
        self._ended = threading.Event()
        self._killed = threading.Event()
        self._timed_out = self._left = False
        self._timer: threading.Timer | None = None

    @property
    def ref(self) -> ExecRef:
        """What it is found again by."""
        asked = self._request
        return ExecRef(self._exec_id, asked.container_id, asked.init_pid, asked.mark, asked.since_ticks)

    def let_go(self) -> None:
        """Whatever becomes of its stream, it is not killed."""
        self._left = True
        self._end()

    def expire_after(self, seconds: float | None, escaped: Escaped | None) -> None:
        """Kill it after so long; `escaped` is called if processes are left then."""
        if seconds is not None:
            self._timer = threading.Timer(seconds, self._expire, (escaped,))
            self._timer.daemon = True
            self._timer.start()

    def last_chunks(self) -> tuple[Chunk, ...]:
        """What the stream ends with. Raises StreamError when the engine does not tell the exit code."""
        self._end()
        if self._timed_out:
            # Nobody hears of the end before all is killed: what comes next may need the box.
            self._killed.wait(_START_SECONDS)
            return Chunk("timeout", b""), Chunk("exit", str(TIMED_OUT).encode())
        return (Chunk("exit", str(self._exit_code()).encode()),)

    def wait_until_begun(self, deadline: float) -> None:
        """Until it has a process, or had one, or until then (time.monotonic())."""
        seconds = deadline - time.monotonic()
        if seconds > 0 and not self._ended.is_set():
            self._leader(seconds)

    def begun(self) -> bool:
        """Tell whether it has a process, or had one, or never will have; also where the engine does not tell."""
        if self._ended.is_set():
            return True
        try:
            state = self._state()
        except StreamError:
            return True
        return bool(state.get("Pid")) or state.get("ExitCode") is not None

    def never_began(self) -> bool:
        """Whether the engine could not start it: then it has had no process. Raises StreamError."""
        state = self._state()
        return not state.get("Pid") and not state.get("Running")

    def abandon(self) -> None:
        """Its reader has left: a command that nobody hears would use up the box's processes, one call after another."""
        if not self._timed_out and not self._left:
            self._kill(self._leader())
        self._end()

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal a size. One that has ended is let be. Raises StreamError."""
        self._leader()  # before it has a process, the engine refuses
        try:
            self._client.call("exec.resize", lambda api: api.exec_resize(self._exec_id, height=rows, width=columns))
        except Fault as fault:
            raise StreamError(fault.words) from fault

    def signal(self, name: str) -> None:
        """Send a signal (such as INT) to its process group. One that has ended is let be. Raises StreamError."""
        number = getattr(signal, f"SIG{name}", None)
        if not isinstance(number, signal.Signals):
            raise StreamError(f"there is no signal `{name}`; INT, TERM, HUP and KILL are some")
        leader = self._leader()
        if leader:
            signal_group(leader, self._request.container_id, number, self._killer.proc)

    def _exit_code(self) -> int:
        # The output ends a moment before the engine has noted the exit.
        state = self._poll(lambda state: not state.get("Running"), _EXIT_SECONDS)
        code = state.get("ExitCode")
        if state.get("Running") or code is None:
            raise StreamError("the connection to the command was lost; it may still run in the sandbox")
        return int(code)

    def _end(self) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self, escaped: Escaped | None) -> None:
        """Its time is over, though it may be its children alone that hold its output open."""
        leader = self._leader()
        if self._ended.is_set():
            return
        self._timed_out = True
        try:
            whole = self._kill(leader)
            left = self._killer.doubtful(self._target(leader))
            if escaped is not None and (left or not whole):
                escaped("processes that can't be told from the box's own")
        finally:
            self._killed.set()
            # What the dead had written is still read; a child that left the group may hold the pipe open for ever.
            self._ended.wait(_LAST_WORDS_SECONDS)
            self._wire.cut()

    def _kill(self, leader: int) -> bool:
        whole = self._killer.end(self._target(leader))
        if not whole:
            log.warning("not all of a command in container %s could be killed", self._request.container_id[:12])
        return whole

    def _target(self, leader: int) -> Target:
        asked = self._request
        return Target(asked.container_id, asked.init_pid, leader, asked.mark, asked.since_ticks)

    def _leader(self, seconds: float = _START_SECONDS) -> int:
        """The pid of its first process, which may have ended; 0 if it can't be told or was never there.

        A loaded engine may take longer to start it than its time.
        """
        try:
            state = self._poll(lambda state: state.get("Pid") or state.get("ExitCode") is not None, seconds)
        except StreamError:
            return 0
        return int(state.get("Pid") or 0)

    def _poll(self, true: Callable[[dict[str, Any]], Any], seconds: float) -> dict[str, Any]:
        """The first state for which that is true; the last one when there is none in time."""
        deadline, (pause, longest) = time.monotonic() + seconds, _POLL_SECONDS
        while not true(state := self._state()) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return state

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = self._client.call("exec.inspect", lambda api: api.exec_inspect(self._exec_id))
        except Fault as fault:
            raise stream_error(fault) from fault
        return state


def feed(wire: Wire, stdin: Iterable[bytes]) -> None:
    """Write all of the input, then say that it ended. Ends early when the command has."""
    try:
        for data in stdin:
            wire.write(data)
        wire.end_of_input()
    except FOREIGN:
        return
    except Exception:
        # Whoever gives the input failed. Half of it must not look like all of it.
        log.warning("the input of a command broke off", exc_info=True)
        wire.cut()


def stream_error(fault: Fault) -> StreamError:
    """A fault in words for whoever asked."""
    if fault.gone:
        return StreamError("the container is gone; ask again once the sandbox is Ready")
    if fault.status == 409:
        return StreamError(f"the sandbox is not running: {fault.words}; ask again once it is Ready")
    return StreamError(fault.words)
