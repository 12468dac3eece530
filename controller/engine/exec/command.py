"""One exec in a sandbox, from create to exit. It is killed at its time-out, or when its reader disconnects."""

import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import FOREIGN, Fault
from controller.engine.docker.raw_http import HttpStream
from controller.engine.kernel.kill import MARK, Killer, Target, signal_group, ticks_now
from controller.kinds.common.chunk import Chunk
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import NotNow, StreamError

log = logging.getLogger(__name__)

TIMED_OUT, _CONFLICT = 124, 409
# After the kill, the rest in the pipe is read for at most so long (a child may hold it open).
_DRAIN_SECONDS = 1.0
_EXIT_SECONDS = 5.0
_START_SECONDS, _BEGUN_SECONDS = 30.0, 2.0
_POLL_SECONDS = (0.001, 0.02)  # the first pause and the longest
# A terminal's detach keys can't be disabled: the engine holds back the first key until the next one is typed. Shells
# need the default, Ctrl-P; no program needs these.
_DETACH_KEYS = "ctrl-^,ctrl-@,ctrl-^,ctrl-@"
# Typed twice: within a line, the first only sends the line.
_END_OF_INPUT = b"\x04\x04"
# Called with a message if processes remain whose owner is unknown.
Escaped = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """Exec request."""

    container_id: str
    """Id of the container."""
    init_pid: int
    """Pid of its first process on the host."""
    command: Sequence[str]
    """Program and arguments."""
    env: Mapping[str, str]
    """Variables besides the container's."""
    working_dir: str
    """Folder to start in; empty: the container's."""
    user: str
    """User, as uid or uid:gid; empty: the container's."""
    stdin: bool
    """It reads standard input."""
    tty: bool
    """It gets a terminal."""
    size: tuple[int, int] | None = None
    """Columns and rows of the terminal; None: the engine's default."""
    hangs_up: bool = False
    """The end of the connection ends the command."""
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    """Random text in its environment that identifies its processes, which inherit it."""
    since_ticks: int = field(default_factory=ticks_now)
    """Time of the request in clock ticks since boot: older processes are not its own."""

    def ref(self, exec_id: str) -> ExecRef:
        """Return the reference by which a later daemon finds it."""
        return ExecRef(exec_id, self.container_id, self.init_pid, self.mark, self.since_ticks)

    def body(self) -> dict[str, Any]:
        """Return the engine's request. Never privileged."""
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
            **({"ConsoleSize": list(self.size)} if self.tty and self.size else {}),
        }


class Exec:
    """A running command, killed at its time-out. Its exit code is read at the end."""

    def __init__(self, client: Client, killer: Killer, request: Request, exec_id: str, wire: HttpStream) -> None:
        self._client, self._killer, self._request = client, killer, request
        self._exec_id, self._wire = exec_id, wire
        self._ended = threading.Event()
        self._killed = threading.Event()
        self._timed_out = self._left = self._resized = False
        self._resizing = threading.Lock()
        self._settled = False
        self._timer: threading.Timer | None = None

    @property
    def ref(self) -> ExecRef:
        """Reference by which a later daemon finds it."""
        return self._request.ref(self._exec_id)

    def detach_stream(self) -> None:
        """Leave the command running, whatever happens to its stream."""
        self._left = self._settled = True
        self._end()

    def expire_after(self, seconds: float | None, escaped: Escaped | None) -> None:
        """Kill it after so many seconds; `escaped` is called if processes remain then."""
        if seconds is not None:
            self._timer = threading.Timer(seconds, self._expire, (escaped,))
            self._timer.daemon = True
            self._timer.start()

    def last_chunks(self) -> tuple[Chunk, ...]:
        """Return the last chunks of the stream. Raises StreamError if the exit code is unknown."""
        self._end()
        if self._timed_out:
            # Report the end only after all is killed: the next command may need the sandbox.
            self._killed.wait(_START_SECONDS)
            self._settled = True
            return Chunk("timeout", b""), Chunk("exit", str(TIMED_OUT).encode())
        code = self._exit_code()
        self._settled = True
        return (Chunk("exit", str(code).encode()),)

    @property
    def settled(self) -> bool:
        """True once its end is known, it was killed, or it is left to run: nothing has to be ended any more."""
        return self._settled

    @property
    def has_ended(self) -> bool:
        """True once its end is known, or nobody waits for it any more."""
        return self._ended.is_set()

    def state(self) -> dict[str, Any]:
        """Return the engine's inspect of it. Raises Fault."""
        state: dict[str, Any] = self._client.call("exec.inspect", lambda api: api.exec_inspect(self._exec_id))
        return state

    def wait_until_begun(self, deadline: float) -> None:
        """Wait until it has or had a process, or until `deadline` (time.monotonic())."""
        seconds = deadline - time.monotonic()
        if seconds > 0 and not self._ended.is_set():
            self._leader(seconds)

    def wait_until_ended(self, deadline: float) -> None:
        """Wait until its end is known, or it was killed, or until `deadline` (time.monotonic())."""
        self._ended.wait(max(0.0, deadline - time.monotonic()))

    def has_begun(self) -> bool:
        """Tell whether it has or had a process, or never will; also True where the engine can't tell.

        Newer engines answer for the container while its runtime is stuck, and not for the command.
        """
        if self._ended.is_set():
            return True
        try:
            state = self._client.exec_state(self._exec_id, timeout_seconds=_BEGUN_SECONDS)
        except Fault as fault:
            return fault.kind != "timeout"
        return bool(state.get("Pid")) or state.get("ExitCode") is not None

    def never_began(self) -> bool:
        """Tell whether the engine failed to start it, so that it never had a process. Raises StreamError."""
        state = self._state()
        return not state.get("Pid") and not state.get("Running")

    def abandon(self) -> None:
        """Kill it after its reader has disconnected; else such commands would use up the sandbox's pids.

        One that hangs up gets what the loss of a terminal means; what has left its session runs on.
        """
        self._settled = True
        if not self._timed_out and not self._left:
            if self._request.hangs_up:
                self._killer.hang_up(self._target(self._leader()))
            else:
                self._kill(self._leader())
        self._end()

    def resize(self, rows: int, columns: int) -> None:
        """Resize its terminal. No-op once it has ended. Raises StreamError."""
        self._resized = True
        with self._resizing:
            self._resize(rows, columns)

    def resize_first(self, rows: int, columns: int) -> None:
        """Set the size that its terminal begins with, unless it was resized since. Raises StreamError."""
        with self._resizing:
            if not self._resized:
                self._resize(rows, columns)

    def _resize(self, rows: int, columns: int) -> None:
        self._leader()  # the engine refuses before the process exists
        try:
            self._client.call("exec.resize", lambda api: api.exec_resize(self._exec_id, height=rows, width=columns))
        except Fault as fault:
            raise StreamError(fault.message) from fault

    def signal(self, name: str) -> None:
        """Send a signal (such as INT) to its process group. No-op once it has ended. Raises StreamError."""
        number = signal_number(name)
        leader = self._leader()
        if leader:
            signal_group(leader, self._request.container_id, number, self._killer.proc)

    def _exit_code(self) -> int:
        # The output ends a moment before the engine records the exit.
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
        """Kill it at its time-out; maybe only its children still hold the output open."""
        leader = self._leader()
        if self._ended.is_set():
            return
        self._timed_out = True
        try:
            is_complete = self._kill(leader)
            escape_count = self._killer.possible_escapes(self._target(leader))
            if escaped is not None and (escape_count or not is_complete):
                escaped("processes that can't be told from the sandbox's own")
        finally:
            self._killed.set()
            # Output written before the kill is still read; a child that left the group may hold the pipe open for ever.
            self._ended.wait(_DRAIN_SECONDS)
            self._wire.cut()

    def _kill(self, leader: int) -> bool:
        is_complete = self._killer.end(self._target(leader))
        if not is_complete:
            log.warning("exec not fully killed in container %s", self._request.container_id[:12])
        return is_complete

    def _target(self, leader: int) -> Target:
        request = self._request
        return Target(request.container_id, request.init_pid, leader, request.mark, request.since_ticks)

    def _leader(self, seconds: float = _START_SECONDS) -> int:
        """Return the pid of its first process, which may have ended; 0 if unknown or never started.

        A loaded engine may start it only after its time-out.
        """
        try:
            state = self._poll(lambda state: state.get("Pid") or state.get("ExitCode") is not None, seconds)
        except StreamError:
            return 0
        return int(state.get("Pid") or 0)

    def _poll(self, true: Callable[[dict[str, Any]], Any], seconds: float) -> dict[str, Any]:
        """Return the first state for which `true` holds, else the last one in time."""
        deadline, (pause, longest) = time.monotonic() + seconds, _POLL_SECONDS
        while not true(state := self._state()) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return state

    def _state(self) -> dict[str, Any]:
        try:
            return self.state()
        except Fault as fault:
            raise stream_error(fault) from fault


def portable(command: Sequence[str]) -> list[str]:
    """Return a command that the engine's JSON can carry. Arguments that are not UTF-8 are written by the image's shell.

    They are surrogate escapes here, which the engine would replace.
    """
    if all(_is_text(argument) for argument in command):
        return list(command)
    lines = ["set --"]
    for argument in command:
        octal = "".join(f"\\{byte:03o}" for byte in os.fsencode(argument))
        lines.append(f'a=$(printf \'{octal}x\'); set -- "$@" "${{a%x}}"')  # x: a shell drops newlines at the end
    return ["/bin/sh", "-c", "\n".join([*lines, 'exec "$@"'])]


def sized(command: Sequence[str], size: tuple[int, int]) -> list[str]:
    """Return a command that first sets its terminal's size, by the image's shell."""
    rows, columns = map(str, size)
    return ["/bin/sh", "-c", 'stty rows "$1" cols "$2" 2>/dev/null; shift 2; exec "$@"', "sh", rows, columns, *command]


def _is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def signal_number(name: str) -> signal.Signals:
    """Return the signal of that name, such as INT. Raises StreamError."""
    number = getattr(signal, f"SIG{name}", None)
    if not isinstance(number, signal.Signals):
        raise StreamError(f"signal `{name}`: unknown; use INT, TERM, HUP or KILL")
    return number


def feed(wire: HttpStream, stdin: Iterable[bytes], tty: bool = False) -> None:
    """Write all of the input, then half-close. Returns early once the command has ended.

    The engine ends the output of a terminal with its input, though the command runs on: its end is typed instead.
    """
    try:
        for data in stdin:
            wire.write(data)
        if tty:
            wire.write(_END_OF_INPUT)
        else:
            wire.end_of_input()
    except FOREIGN:
        return
    except Exception:
        # The source of the input failed. Half of it must not look complete.
        log.warning("exec input failed", exc_info=True)
        wire.cut()


def stream_error(fault: Fault, *, may_have_begun: bool = True) -> StreamError:
    """Return a fault as a StreamError for the client. `may_have_begun`: the request may have been carried out."""
    if fault.is_gone:
        return NotNow("the container is gone; retry once the sandbox is Ready")
    if fault.status == _CONFLICT:
        return NotNow(f"the sandbox is not running: {fault.message}; retry once it is Ready")
    return StreamError(fault.message) if may_have_begun else NotNow(fault.message)
