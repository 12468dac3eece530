"""Code contexts: interpreters that keep their state between calls, each a process below a supervisor.

`POST /contexts` and the paths below it are the daemon's way, no tools. Python and JavaScript run a kernel of
`/.paddock/agent/kernels` under the image's own interpreter; bash is a shell. A kernel speaks JSON lines over a socket:
`{"id", "op": "execute", "code", "env"}`, then events with that id until one of the type `done`. Nothing that it sends
is trusted: an event of another id or form is dropped, and the answer says how many. The answer of an execution is a
line of JSON an event, the last `done`.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import errno
import functools
import json
import os
import re
import signal
import socket
import time

from . import supervisor
from .execs import launch
from .loop import Loop, Timer
from .protocol import Exchange, dumps
from .replies import ToolError
from .settings import CONTEXT_LANGUAGES as LANGUAGES

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]

KIND = "application/x-ndjson"
MOST = 8
MOST_CODE = 2 * 1024 * 1024
_MOST_QUEUED = 8  # executions that wait for one context
_READ = 256 * 1024
_MOST_LINE = 6 * 1024 * 1024  # of a kernel's event
_MOST_CELL = 16 * 1024 * 1024  # of an execution's results
_STREAM_PART = 512 * 1024  # of a stream's head, and of its tail
_BACKGROUND = 64 * 1024  # of output between two executions
_MOST_UNSENT = 512 * 1024
_RUN = os.urandom(8).hex().encode()  # in the environment of what this agent has started, and of nothing else
_START_SECONDS, _FORK_SECONDS, _PING_SECONDS = 60.0, 20.0, 5.0
_AGAIN_SECONDS, _KILL_SECONDS = 2.0, 4.0  # after an interrupt
_KILL_ROUNDS = 40
_ENDING_SECONDS = 12.0  # that processes of an interpreter may take up the sandbox's processes after its end
_RETRY_SECONDS, _MOST_TRIES = 0.2, 20
_CGROUP = "/sys/fs/cgroup"
_KERNELS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kernels")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MIME = re.compile(r"[a-z]+/[a-zA-Z0-9.+-]{1,100}")
_COMPLETE_SECONDS = 2.0  # that an interpreter may take to say how code may go on
_MOST_MATCHES, _MOST_MATCH = 200, 200
_MOST_COMPLETED = 65536  # characters of such code
_IMPORTS = "imports"  # name of the execution that loads what a context has from its start
# An interactive bash without a terminal says this whenever a signal has ended a command, as in `yes | head`.
_TERMINAL = re.compile(r"(?m)^bash: \[\d+: \d+ \(\d+\)\] tcsetattr: [^\n]*\n")
_WORD = re.compile(r"[^\s;|&()<>]*\Z")
_PROGRAMS = {"python": ("python3", "python"), "javascript": ("node", "nodejs"), "bash": ("bash",)}
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS")


class Refused(Exception):
    """A request that is answered with this status, a word for programs, and a message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Stream:
    """One stream of an execution: its head is passed on, its tail kept until the end."""

    def __init__(self) -> None:
        self._passed = 0
        self._tail = ""
        self._omitted = 0

    def add(self, text: str) -> str:
        """Take text; return what is to be passed on now."""
        room = max(_STREAM_PART - self._passed, 0)
        passed, rest = text[:room], text[room:]
        self._passed += len(passed)
        if rest:
            self._tail += rest
            if len(self._tail) > 2 * _STREAM_PART:
                self._omitted += len(self._tail) - _STREAM_PART
                self._tail = self._tail[-_STREAM_PART:]
        return passed

    def end(self) -> str:
        """Return what is left: the tail, after a line that counts what is missing."""
        tail = self._tail[-_STREAM_PART:]
        omitted = self._omitted + len(self._tail) - len(tail)
        return f"\n[... {omitted} characters left out ...]\n{tail}" if omitted else tail


class Execution:
    """One run of code, and the answer that its events go to."""

    def __init__(self, exchange: Exchange, name: str, code: str, env: dict[str, str], timeout: float) -> None:
        self.exchange = exchange
        self.name = name
        self.code = code
        self.env = env
        self.timeout = timeout
        self.streams = {"stdout": Stream(), "stderr": Stream()}
        self.result_bytes = 0
        self.results_dropped = 0
        self.forged = 0
        self.began = 0.0
        self.failed = False
        self.ended_by = ""  # interrupted, timeout
        self.over = False

    def send(self, **event: Any) -> None:
        if not self.over:
            self.exchange.chunk(dumps({"execution": self.name, **event}) + b"\n")

    def text(self, stream: str, text: str) -> None:
        passed = self.streams[stream].add(text)
        if passed:
            self.send(type=stream, text=passed)

    def finish(self, **fields: Any) -> None:
        for name, stream in self.streams.items():
            tail = stream.end()
            for at in range(0, len(tail), 65536):
                self.send(type=name, text=tail[at : at + 65536])
        if self.forged:
            self.send(type="notice", text=f"{self.forged} events were dropped: they were not of this execution's form")
        if self.results_dropped:
            self.send(
                type="notice",
                text=f"{self.results_dropped} results were left out: over {_MOST_CELL >> 20} MiB in one execution",
            )
        status = self.ended_by or ("error" if self.failed else "ok")
        done = {"status": status, "seconds": round(time.monotonic() - self.began, 3) if self.began else 0.0}
        self.send(type="done", **{**done, **fields})
        self.over = True
        self.exchange.end_chunks()


class Completion(Execution):
    """Continuations of code at its end: no execution that counts, and its answer is one object."""

    def __init__(self, exchange: Exchange, language: str, code: str) -> None:
        self._replaced = 0
        self._matches: list[str] = []
        self._prints_matches = language == "bash"
        self.is_stuck = False  # answered without matches, while the interpreter reads on
        if self._prints_matches:
            self._replaced, code = _bash_completion(code)
        super().__init__(exchange, "complete", code, {}, _COMPLETE_SECONDS)

    def take(self, event: Json) -> bool:
        """Take what an interpreter answers; False if it is not of its form."""
        replaced, matches = event.get("replaced"), event.get("matches")
        if isinstance(replaced, bool) or not isinstance(replaced, int) or not 0 <= replaced <= len(self.code):
            return False
        if not isinstance(matches, list) or not all(isinstance(match, str) for match in matches):
            return False
        self._replaced, self._matches = replaced, matches
        return True

    def text(self, stream: str, text: str) -> None:
        """Take what bash prints, a match a line; what an object's attributes print is lost."""
        if self._prints_matches and stream == "stdout":
            self._matches = ("\n".join(self._matches) + text)[:_STREAM_PART].split("\n")

    def send(self, **event: Any) -> None:
        """Send nothing: an interpreter that can't tell is no error."""

    def finish(self, **_: Any) -> None:
        if not self.over:
            matches = [match for match in dict.fromkeys(self._matches) if 0 < len(match) <= _MOST_MATCH]
            answer = {"replaced": self._replaced, "matches": matches[:_MOST_MATCHES]}
            self.exchange.reply(200, dumps(answer))
        self.over = True

    def give_up(self) -> None:
        """Answer without matches: what reads them heeds no interrupt."""
        self.is_stuck = True
        self.finish()


class Family:
    """The supervisor of an interpreter and of its forks: it ends when the last of them does."""

    def __init__(self, loop: Loop, control: socket.socket, report: Callable[[Family, bytes, int], None]) -> None:
        self.control = control
        self.members: set[Context] = set()
        self._loop = loop
        self._report = report
        loop.watch(control.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            message = self.control.recv(supervisor.MESSAGE_SIZE)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if len(message) != supervisor.MESSAGE_SIZE:
            self._loop.forget(self.control.fileno())
            for member in self.members:
                if member.pid > 1:  # nobody else ends them now
                    kill_member(member.pid, member.name, set())
            self._report(self, supervisor.EXITED, signal.SIGKILL)
            return
        self._report(self, *supervisor.unpack(message))

    def end(self) -> None:
        """Kill every process; the end of the socket is the order."""
        if self.control.fileno() >= 0:
            self._loop.forget(self.control.fileno())
            self.control.close()


class Context:
    """One interpreter. `state` is starting, idle, busy or ended; an ended one begins anew with its next execution."""

    def __init__(self, owner: Contexts, name: str, given: Json) -> None:
        self.name = name
        self.language: str = given["language"]
        self.folder: str = given.get("cwd", "") or owner.root
        self.env: dict[str, str] = given.get("env", {})
        self.imports: list[str] = given.get("imports", [])
        self.threads: int = given.get("threads", 0)
        self.created = time.time()
        self.fork_of = ""
        self.state = "starting"
        self.engine = self.reason = self.version = ""
        self.executions = 0
        self.pid = 0
        self.lost = ""  # why the state before is gone, until an execution has said so
        self.started = False  # an execution has used this interpreter
        self.current: Execution | None = None
        self.queue: list[Execution] = []
        self.family: Family | None = None
        self.waiting: list[Callable[[str], None]] = []  # for the start; with what is wrong, or ""
        self.forking: Callable[[list[str] | None], None] | None = None
        self._owner = owner
        self._loop = owner.loop
        self._connection: socket.socket | None = None
        self._out = bytearray()  # for the kernel
        self._buffer = bytearray()
        self._skipping = False  # a line that is too long
        self._pipes: dict[int, str] = {}
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._background: list[tuple[str, str]] = []
        self._stdin = -1
        self._exit_code: int | None = None
        self._timers: list[Timer] = []
        self._start_timer: Timer | None = None
        self._ping: Timer | None = None
        self._paused = False
        self._number = 0  # of the execution, as the kernel knows it
        self._tries = 0  # of its start

    # ---- start and end

    def start(self) -> None:
        """Start the interpreter. Raises Refused; where an ended one still takes the place of processes, it waits."""
        try:
            self._launch()
        except Refused as error:
            if error.reason != "NoProcess" or not self._owner.is_ending:
                raise
            self._retry()

    def _retry(self) -> None:
        self.state = "starting"
        self._start_timer = self._loop.after(_RETRY_SECONDS, self._start_again)

    def _start_again(self) -> None:
        try:
            if self.state == "starting":
                self.start()
        except Refused as error:
            self._fail(str(error))

    def _launch(self) -> None:
        program = self._owner.program(self.language)
        kernel = {"python": "python.py", "javascript": "javascript.js"}.get(self.language, "")
        command = [program, *([b"-u"] if self.language == "python" else [])]
        if kernel:
            command += [os.fsencode(os.path.join(_KERNELS, kernel)), b"%d" % supervisor.EVENTS]
        else:
            command += [b"--norc", b"--noprofile", b"--noediting", b"-i"]
        try:
            folder = os.open(os.fsencode(self.folder), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(422, "BadFolder", f"cwd: {self.folder}: {os.strerror(error.errno or 0).lower()}") from None
        ours, theirs = socket.socketpair()
        try:
            launched = launch(command, folder, self._environment(), not kernel, stay=True, events=theirs.fileno())
        except ToolError as error:
            ours.close()
            raise Refused(503, "NoProcess", str(error)) from None
        finally:
            os.close(folder)
            theirs.close()
        control, out, err, self._stdin = launched
        self.state, self.engine, self.reason, self._exit_code = "starting", "", "", None
        self.fork_of = ""
        self.started = False
        self.family = Family(self._loop, control, self._reported)
        self.family.members.add(self)
        self._connect(ours, out, err)
        self._start_timer = self._loop.after(_START_SECONDS, lambda: self._fail("it was not ready in time"))
        if self.language == "bash":
            self.engine = "bash"
            self._tell_bash("")

    def _connect(self, connection: socket.socket, out: int, error: int) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._paused = self._skipping = False
        self._buffer.clear()
        self._out.clear()
        self._background.clear()
        self._pipes = {out: "stdout", error: "stderr"}
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self._watch()

    def _environment(self) -> dict[bytes, bytes]:
        environment = dict(self._owner.environment)
        if self.threads:
            for name in _THREADS:
                environment.setdefault(name.encode(), b"%d" % self.threads)
        environment.update((os.fsencode(name), os.fsencode(value)) for name, value in self.env.items())
        environment[b"PADDOCK_CONTEXT"] = self.name.encode()
        environment[b"PADDOCK_AGENT_RUN"] = _RUN
        if self.language == "bash":
            environment[b"PS1"] = environment[b"PS2"] = b""
            environment[b"TERM"] = b"dumb"
        return environment

    def _reported(self, family: Family, kind: bytes, value: int) -> None:
        """Take a report of the supervisor; what the interpreter has sent before is read first."""
        if family is not self.family:
            return  # of an interpreter before this one, which has forks
        if kind == supervisor.BEGUN:
            self.pid = value
        elif kind == supervisor.FAILED and value == errno.EAGAIN and self._owner.is_ending:
            self._close()
            self._retry()
        elif kind == supervisor.FAILED:
            self._fail(f"it can't be started: {os.strerror(value).lower()}")
        elif self.fork_of == "":
            self._exit_code = 128 + os.WTERMSIG(value) if os.WIFSIGNALED(value) else os.WEXITSTATUS(value)
            self._drain_connection()
            self._ended()

    def _fail(self, problem: str) -> None:
        """End a start that did not succeed."""
        if self.state == "starting":
            tail = "".join(text for _, text in self._background)[-2000:].strip()
            self._close()
            self.state = "ended"
            self._loop.cancel(self._start_timer)
            waiting, self.waiting = self.waiting, []
            message = f"{problem}; its output: {tail}" if tail else problem
            for callback in waiting:
                callback(message)
            for execution in self._take_queue():
                execution.send(type="error", name="ContextDied", value=message, traceback="")
                execution.finish(status="died", stateLost=True, count=0, exitCode=self._exit_code)

    def _take_queue(self) -> list[Execution]:
        taken, self.queue = self.queue, []
        return taken

    def _ended(self, reason: str = "") -> None:
        """Note that the interpreter has ended; what it left running ends with it, but for its forks."""
        if self.state == "starting" and self._owner.is_ending and self._tries < _MOST_TRIES:
            self._tries += 1  # it found no place for a thread, say
            self._close()
            self._retry()
            return
        if self.state == "starting":
            self._fail(f"it ended at its start with exit code {self._exit_code}")
            return
        if self.state == "ended":
            return
        code = "" if self._exit_code is None else f" with exit code {self._exit_code}"
        self.state = "ended"
        self.lost = reason or f"the interpreter ended{code}"
        self._drain_pipes()
        self._close()
        forking, self.forking = self.forking, None
        if forking is not None:
            forking(["the interpreter ended"])
        current, self.current = self.current, None
        if current is not None:
            current.send(type="error", name="ContextDied", value=self.lost, traceback="")
            status = current.ended_by or "died"
            current.finish(status=status, stateLost=True, count=self.executions, exitCode=self._exit_code)
        self._stop_timers()
        if self.queue:
            self._restart_for_queue()

    def _restart_for_queue(self) -> None:
        try:
            self.start()
        except Refused as error:
            self.state = "starting"
            self._fail(str(error))

    def _close(self) -> None:
        """Let go of the interpreter, and kill it with all that it left."""
        if self._connection is not None:
            self._loop.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None
        for fd in self._pipes:
            self._loop.forget(fd)
            os.close(fd)
        self._pipes.clear()
        if self._stdin >= 0:
            self._loop.forget(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
        family, self.family = self.family, None
        if family is not None:
            if self.state != "starting":
                self._owner.ended_at = time.monotonic()
            family.members.discard(self)
            if family.members:
                kill_member(self.pid, self.name, {member.pid for member in family.members})
            else:
                family.end()
        self.pid = 0

    def _stop_timers(self) -> None:
        for timer in self._timers:
            self._loop.cancel(timer)
        self._timers.clear()
        self._loop.cancel(self._ping)
        self._ping = None

    def delete(self) -> None:
        """End it for good."""
        self.state = "ended" if self.state != "starting" else self.state
        if self.state == "starting":
            self._fail("it was deleted")
        current, self.current = self.current, None
        for execution in [*([current] if current else []), *self._take_queue()]:
            execution.send(type="error", name="ContextDied", value="the context was deleted", traceback="")
            execution.finish(status="died", stateLost=True, count=self.executions, exitCode=None)
        self._stop_timers()
        self._close()

    def restart(self) -> None:
        """Begin with a new interpreter. Raises Refused."""
        self.delete()
        self.lost, self.executions = "", 0
        self.start()

    # ---- executions

    def execute(self, execution: Execution) -> None:
        """Run it now or after those that wait. Raises Refused."""
        if len(self.queue) >= _MOST_QUEUED:
            raise Refused(
                429, "Busy", f"context `{self.name}` is busy and {len(self.queue)} executions wait; try again later"
            )
        if isinstance(self.current, Completion) and self.current.is_stuck:
            raise Refused(
                429, "Busy", f"context `{self.name}` still lists how code may go on; try again later, or interrupt it"
            )
        if self.state == "ended":
            self.start()
        execution.exchange.open_chunks(KIND)
        execution.exchange.on_gone(lambda: self._abandon(execution))
        self.queue.append(execution)
        if self._ping is None:
            self._ping = self._loop.after(_PING_SECONDS, self._send_ping)
        self._next()

    def _send_ping(self) -> None:
        self._ping = None
        for execution in [*([self.current] if self.current else []), *self.queue]:
            execution.send(type="ping")
        if self.current is not None or self.queue:
            self._ping = self._loop.after(_PING_SECONDS, self._send_ping)

    def _abandon(self, execution: Execution) -> None:
        """End an execution whose caller has gone; the state stays."""
        execution.over = True
        if execution in self.queue:
            self.queue.remove(execution)
        elif isinstance(execution, Completion):
            self._end_completion(execution)
        elif execution is self.current:
            self.interrupt("interrupted")

    def _next(self) -> None:
        if self.state != "idle" or self.current is not None or not self.queue or self.forking is not None:
            return
        execution = self.queue.pop(0)
        self.current, self.state = execution, "busy"
        self._number += 1
        execution.began = time.monotonic()
        if not isinstance(execution, Completion):
            self._announce(execution)
        if execution.timeout:
            self._timers.append(self._loop.after(execution.timeout, functools.partial(self._expire, execution)))
        if self.language == "bash":
            self._tell_bash(execution.code, execution.env)
        else:
            self._tell(
                {
                    "id": self._number,
                    "op": "complete" if isinstance(execution, Completion) else "execute",
                    "code": execution.code,
                    "env": execution.env,
                    "counted": execution.name != _IMPORTS,
                }
            )

    def _announce(self, execution: Execution) -> None:
        """Tell an execution of its interpreter, and give it what came since the one before."""
        self.executions += 1
        lost, self.lost = self.lost, ""
        execution.send(
            type="started", context=self.name, language=self.language, engine=self.engine, reason=self.reason,
            fresh=not self.started, lost=lost,
        )  # fmt: skip
        self.started = True
        for stream, text in self._background:
            execution.text(stream, text)
        self._background.clear()

    def complete(self, exchange: Exchange, code: str) -> None:
        """Answer how code may go on. Raises Refused unless it is idle: nobody would wait for that."""
        if self.state != "idle" or self.queue or self.forking is not None:
            raise Refused(409, "Busy", f"context `{self.name}` is {self.state}: it is asked between executions")
        completion = Completion(exchange, self.language, code)
        exchange.on_gone(lambda: self._abandon(completion))
        self.queue.append(completion)
        self._next()

    def _expire(self, execution: Execution) -> None:
        if isinstance(execution, Completion):
            self._end_completion(execution)
        elif execution is self.current:
            self.interrupt("timeout")

    def _end_completion(self, completion: Completion) -> None:
        """Interrupt it, and do without its answer soon. The interpreter is not killed: no Tab costs a state."""
        if completion is self.current:
            self._signal(group=self.language == "bash")
            self._timers.append(self._loop.after(_AGAIN_SECONDS, completion.give_up))

    def interrupt(self, reason: str) -> bool:
        """Interrupt what runs, more strongly after 2 s, and kill it after 4 s. False if nothing runs."""
        current = self.current
        if current is None:
            return False
        if current.ended_by:
            return True  # it is under way
        current.ended_by = reason
        number = self._number

        def kill() -> None:
            if self.current is current and self._number == number:
                self._exit_code = 128 + signal.SIGKILL
                self._ended(f"it did not end {_KILL_SECONDS:g} s after it was interrupted, and was killed")

        self._signal(group=self.language == "bash")
        self._timers.append(self._loop.after(_AGAIN_SECONDS, lambda: self._signal(group=True)))
        self._timers.append(self._loop.after(_KILL_SECONDS, kill))
        return True

    def _signal(self, *, group: bool) -> None:
        if self.pid > 1:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(self.pid, signal.SIGINT)

    def _done(self, count: int, *, failed: bool | None = None, **fields: Any) -> None:
        self._drain_pipes()
        current, self.current = self.current, None
        self._stop_timers()
        self.state = "idle"
        if current is not None:
            current.failed = current.failed if failed is None else failed
            current.finish(stateLost=False, count=count, exitCode=None, **fields)
        if self.queue:
            self._ping = self._loop.after(_PING_SECONDS, self._send_ping)
        self._next()

    # ---- forks

    def fork(self, copy: Context, force: bool, done: Callable[[list[str] | None], None]) -> None:
        """Make COPY a copy of this one; DONE gets the reasons of a refusal, None once it runs. Raises Refused."""
        if self.language != "python":
            raise Refused(409, "NoFork", f"a context of {self.language} can't be forked; Python's can")
        if self.state != "idle" or self._connection is None or self.family is None or self.forking is not None:
            raise Refused(409, "Busy", f"context `{self.name}` is {self.state}: it can be forked between executions")
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        err_read, err_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (out_write, err_write):
            os.set_blocking(fd, True)
        self._number += 1
        request = {"id": self._number, "op": "fork", "force": force, "context": copy.name}
        data = json.dumps(request).encode() + b"\n"
        try:
            socket.send_fds(self._connection, [data], [theirs.fileno(), out_write, err_write])
        except OSError:
            ours.close()
            os.close(out_read)
            os.close(err_read)
            raise Refused(409, "Busy", f"context `{self.name}` does not take a fork now; try again") from None
        finally:
            theirs.close()
            os.close(out_write)
            os.close(err_write)
        copy.fork_of, copy.family = self.name, self.family
        copy.language, copy.folder, copy.env, copy.started = self.language, self.folder, self.env, True
        copy.imports, copy.threads, copy.executions = self.imports, self.threads, self.executions
        self.family.members.add(copy)
        copy._connect(ours, out_read, err_read)
        timer = self._loop.after(_FORK_SECONDS, lambda: over(["the interpreter did not fork in time"]))

        def over(reasons: list[str] | None) -> None:
            if self.forking is over:
                self.forking = None
                self._loop.cancel(timer)
                done(reasons)
                self._next()

        self.forking = over

    # ---- input and output

    def _watch(self) -> None:
        if self._connection is not None:
            on_read = None if self._paused else self._readable
            self._loop.watch(self._connection.fileno(), on_read, self._writable if self._out else None)
        for fd in self._pipes:
            self._loop.watch(fd, None if self._paused else functools.partial(self._readable_pipe, fd))

    def _tell(self, request: Json) -> None:
        self._out += json.dumps(request).encode() + b"\n"
        self._writable()

    def _tell_bash(self, code: str, env: dict[str, str] | None = None) -> None:
        """Have the shell evaluate code, and say its end with the code and the folder on the socket."""
        prefix = "".join(f"export {name}={_quoted(value)}; " for name, value in (env or {}).items())
        body = base64.b64encode((prefix + code).encode("utf-8", "surrogateescape"))
        line = b'{ eval "$(base64 -d <<< ' + body + b')"; } < /dev/null %d>&-\n' % supervisor.EVENTS
        end = b'printf \'{"id":%d,"type":"done","code":%%d}\\n\' "$?" >&%d\n' % (self._number, supervisor.EVENTS)
        self._out += line + end
        self._writable()

    def _writable(self) -> None:
        """Write what waits for the interpreter."""
        fd = self._stdin if self.language == "bash" else (self._connection.fileno() if self._connection else -1)
        while self._out and fd >= 0:
            try:
                del self._out[: os.write(fd, memoryview(bytes(self._out[:65536])))]
            except BlockingIOError:
                break
            except OSError:
                self._out.clear()  # it has ended: its supervisor says so
        if self.language == "bash" and fd >= 0:
            self._loop.watch(fd, None, self._writable if self._out else None)
        self._watch()

    def _readable(self) -> None:
        self._read_connection()
        self._check_unsent()

    def _read_connection(self) -> bool:
        """Read what has come; False: nothing more has."""
        if self._connection is None:
            return False
        try:
            data = self._connection.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.forget(self._connection.fileno())
            if self.fork_of:
                self._ended()  # the supervisor knows no fork's end
            return False
        self._buffer += data
        self._split()
        return True

    def _drain_connection(self) -> None:
        rounds = 0
        while rounds < 256 and self._read_connection():
            rounds += 1

    def _split(self) -> None:
        """Handle the lines that are whole; one beyond its bound is dropped as it comes."""
        while True:
            end = self._buffer.find(b"\n")
            if end < 0:
                break
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if self._skipping or len(line) > _MOST_LINE:
                self._skipping = False
                self._forged()
            else:
                self._line(line)
        if len(self._buffer) > _MOST_LINE:
            self._buffer.clear()
            self._skipping = True

    def _forged(self) -> None:
        if self.current is not None:
            self.current.forged += 1

    def _line(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not self._event(event):
            self._forged()

    def _event(self, event: Json) -> bool:
        """Take one event; False if it is not of its form."""
        kind = event.get("type")
        if kind == "ready":
            return self._ready(event)
        if event.get("id") != self._number:
            return False
        if self.state == "starting" and kind == "done" and self.language == "bash":
            return self._ready({"engine": "bash", "version": "", "reason": "", "pid": self.pid})
        if kind in ("forked", "refused"):
            return self._forked(event)
        current = self.current
        if current is None:
            return False
        if kind in ("stdout", "stderr"):
            text = event.get("text")
            if not isinstance(text, str):
                return False
            current.text(kind, text)
        elif kind == "result":
            return self._result(current, event)
        elif kind == "error":
            fields = [event.get(name) for name in ("name", "value", "traceback")]
            if not all(isinstance(field, str) for field in fields):
                return False
            name, value, traceback = (str(field)[:131072] for field in fields)
            current.failed = True
            current.send(type="error", name=name, value=value, traceback=traceback)
        elif kind == "notice" and isinstance(event.get("text"), str):
            current.send(type="notice", text=event["text"][:4096])
        elif kind == "clear":
            current.send(type="clear", wait=event.get("wait") is True)
        elif kind == "completions" and isinstance(current, Completion):
            return current.take(event)
        elif kind == "done":
            return self._end_mark(event)
        else:
            return False
        return True

    def _end_mark(self, event: Json) -> bool:
        if self.language == "bash":
            code = event.get("code")
            if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
                return False
            self._finish_bash(code)
            return True
        count = event.get("count")
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1 << 53:
            return False
        self._done(count)
        return True

    def _finish_bash(self, code: int) -> None:
        current = self.current
        if current is not None and code:
            self._drain_pipes()
            current.failed = True
            name = "KeyboardInterrupt" if current.ended_by else "ExitCode"
            current.send(type="error", name=name, value=str(code), traceback="")
        self._done(self.executions, code=code)

    def _result(self, current: Execution, event: Json) -> bool:
        data = event.get("data")
        if not isinstance(data, dict) or not data or len(data) > 32 or not all(_MIME.fullmatch(mime) for mime in data):
            return False
        if not all(isinstance(value, str) or mime.endswith("json") for mime, value in data.items()):
            return False
        main, update, display = event.get("main"), event.get("update", False), event.get("display", "")
        metadata = event.get("metadata", {})
        if not isinstance(main, bool) or not isinstance(update, bool) or not isinstance(display, str):
            return False
        if not isinstance(metadata, dict):
            return False
        current.result_bytes += len(json.dumps(data))
        if current.result_bytes > _MOST_CELL:
            current.results_dropped += 1
            return True
        more = {"metadata": metadata} if metadata else {}
        current.send(type="result", main=main, update=update, display=display[:128], data=data, **more)
        return True

    def _ready(self, event: Json) -> bool:
        pid, fields = event.get("pid"), [event.get(name) for name in ("engine", "version", "reason")]
        if self.state != "starting" or not all(isinstance(field, str) and len(field) < 1000 for field in fields):
            return False
        if self.fork_of:
            if not isinstance(pid, int) or pid <= 1 or pid not in supervisor.descendants(os.getpid()):
                return False
            self.pid = pid
        self.engine, self.version, self.reason = map(str, fields)
        self._loop.cancel(self._start_timer)
        self._tries = 0
        self._drain_pipes()
        self._background.clear()  # bash says that it has no terminal
        self.state = "idle"
        if self.imports and not self.fork_of:
            self._import()
            return True
        self._be_ready()
        return True

    def _be_ready(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback("")
        self._next()

    def _import(self) -> None:
        """Load the modules that a context has from its start; what fails is told by the code that needs it."""
        lines = "".join(f"try:\n import {name}\nexcept Exception: pass\n" for name in self.imports)
        if self.language == "javascript":
            lines = "".join(f"try {{ require({json.dumps(name)}) }} catch (e) {{}}\n" for name in self.imports)
        execution = Execution(_Silence(self._be_ready), _IMPORTS, lines, {}, _START_SECONDS)
        self.queue.insert(0, execution)
        self._next()
        self.executions, self.started = 0, False

    def _forked(self, event: Json) -> bool:
        forking = self.forking
        if forking is None:
            return False
        if event["type"] == "forked":
            forking(None)
            return True
        reasons = event.get("reasons")
        if not isinstance(reasons, list) or not all(isinstance(reason, str) for reason in reasons):
            return False
        forking([reason[:500] for reason in reasons[:32]] or ["the interpreter refused"])
        return True

    def _readable_pipe(self, fd: int) -> None:
        self._read_pipe(fd)

    def _read_pipe(self, fd: int) -> bool:
        """Read output of the interpreter's own descriptors, which its children share; False: nothing more has come."""
        stream = self._pipes[fd]
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._loop.forget(fd)
            os.close(fd)
            del self._pipes[fd]
            return False
        text = self._decoders[stream].decode(data)
        if self.language == "bash" and stream == "stderr":
            text = _TERMINAL.sub("", text)
        if self.current is not None:
            self.current.text(stream, text)
            self._check_unsent()
        else:
            self._background.append((stream, text[-_BACKGROUND:]))
            while sum(len(text) for _, text in self._background) > _BACKGROUND:
                self._background.pop(0)
        return True

    def _drain_pipes(self) -> None:
        for fd in list(self._pipes):
            rounds = 0
            while rounds < 64 and fd in self._pipes and self._read_pipe(fd):
                rounds += 1

    def _check_unsent(self) -> None:
        """Let the interpreter wait for a slow reader."""
        current = self.current
        if current is None or current.over or current.exchange.unsent <= _MOST_UNSENT or self._paused:
            return
        self._paused = True
        self._watch()

        def resume() -> None:
            self._paused = False
            self._watch()

        current.exchange.on_drained(resume)
        previous = current

        def gone() -> None:
            resume()
            self._abandon(previous)

        current.exchange.on_gone(gone)

    # ---- for people

    def facts(self) -> Json:
        processes = supervisor.descendants(self.pid) if self.pid else {}
        return {
            "name": self.name,
            "language": self.language,
            "state": self.state,
            "engine": self.engine,
            "version": self.version,
            "reason": self.reason or self.lost,
            "cwd": self._folder(),
            "forkOf": self.fork_of,
            "executions": self.executions,
            "queued": len(self.queue),
            "created": round(self.created, 3),
            "memoryBytes": sum(memory_of(pid) for pid in (self.pid, *processes)) if self.pid else 0,
            "processes": len(processes),
        }

    def _folder(self) -> str:
        try:
            return os.readlink(f"/proc/{self.pid}/cwd") if self.pid else self.folder
        except OSError:
            return self.folder


class _Silence(Exchange):
    """The answer of an execution that nobody asked for."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._end = done

    def chunk(self, data: bytes) -> None:
        """Drop it."""

    def end_chunks(self) -> None:
        self._end()

    @property
    def unsent(self) -> int:
        return 0

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Nothing waits."""

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Nobody leaves."""


def memory_of(pid: int) -> int:
    """Return a process's share of memory in bytes; 0 of one that has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:")), 0)
    except OSError:
        return 0


def kill_member(pid: int, name: str, spared: set[int]) -> None:
    """Kill one interpreter of a family, with its descendants, its session and what else has its mark.

    All are stopped before one is killed, as the supervisor does it. A fork's own environment is its original's, as the
    kernel shows it: SPARED are the others of the family.
    """
    if pid <= 1:
        return  # it has not said its pid: below 0 and 1 is every process there is
    mark = {b"PADDOCK_CONTEXT=" + name.encode(), b"PADDOCK_AGENT_RUN=" + _RUN}
    stopped: set[int] = set()
    for _ in range(_KILL_ROUNDS):
        processes = _of_member(pid, mark) - spared
        if not processes - {pid} and stopped:
            _send_all(processes, signal.SIGKILL)
            return
        if processes <= stopped:
            _send_all(processes, signal.SIGKILL)
        else:
            _send_all(processes, signal.SIGSTOP)
        stopped |= processes
    _send_all(stopped - spared, signal.SIGKILL)


def _of_member(pid: int, mark: set[bytes]) -> set[int]:
    """Return the living processes of an interpreter.

    One whose supervisor was killed may be the first process's child; a pid without the mark may be another's by now.
    """
    own = supervisor.descendants(os.getpid()).keys()
    processes = (set(supervisor.descendants(pid)) | {pid}) & own
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) > 1:
            is_in_session, is_marked = _belongs(entry, pid, mark)
            if is_marked or (is_in_session and int(entry) in own):
                processes.add(int(entry))
    return processes


def _send_all(processes: set[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _belongs(entry: str, session: int, mark: set[bytes]) -> tuple[bool, bool]:
    """Return if a process lives and is of that session, and if its environment has all of that mark."""
    try:
        with open(f"/proc/{entry}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return False, False
        with open(f"/proc/{entry}/environ", "rb") as file:
            return int(fields[3]) == session, mark <= set(file.read().split(b"\0"))
    except OSError:
        return False, False


def cpus_of(cgroup: str) -> int:
    """Return the CPUs that a cgroup's limit allows, rounded up; 0: none is set, or it can't be read."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            fields = [field for name in names for field in _words(os.path.join(cgroup, name))]
            quota, period = int(fields[0]), int(fields[1])
        except (OSError, ValueError, IndexError):
            continue  # of the other version, or `max`
        return -(-quota // period) if quota > 0 and period > 0 else 0
    return 0


def _words(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read(256).split()


def _bash_completion(code: str) -> tuple[int, str]:
    """Return how many characters at the end of code its matches replace, and what prints these: bash's own builtin."""
    word = _WORD.search(code)[0]  # type: ignore[index]
    if word.startswith("$"):
        return len(word), f"compgen -P '$' -v -- {_quoted(word[1:])}"
    before = code[: len(code) - len(word)].rstrip(" \t")
    kinds = "-c -f" if not before or before[-1] in "\n;|&(" else "-f"
    return len(word), f"compgen {kinds} -- {_quoted(word)}"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


class Contexts:
    """All contexts of a sandbox."""

    def __init__(self, loop: Loop, root: str, environment: dict[bytes, bytes]) -> None:
        self.loop = loop
        self.root = root if os.path.isdir(root) else "/"
        self.environment = environment
        self.ended_at = -_ENDING_SECONDS  # the time of the last end of an interpreter
        self._all: dict[str, Context] = {}
        self._handlers: dict[str, Callable[[Json, Exchange], None]] = {
            "": self._create,
            "/execute": self._execute,
            "/complete": self._complete,
            "/interrupt": self._interrupt,
            "/restart": self._restart,
            "/fork": self._fork,
            "/delete": self._delete,
        }

    @property
    def is_ending(self) -> bool:
        """True while processes of an interpreter may take up the sandbox's processes and memory after its end."""
        return time.monotonic() - self.ended_at < _ENDING_SECONDS

    def handle(self, path: str, body: bytes, exchange: Exchange) -> None:
        """Answer a request below `/contexts`; without a body it is the list."""
        try:
            if path == "/list":
                self._list(exchange)
                return
            try:
                given = json.loads(body)
            except (ValueError, RecursionError):
                raise Refused(400, "BadRequest", "the body is not valid JSON") from None
            if not isinstance(given, dict):
                raise Refused(400, "BadRequest", "the body must be an object")
            self._handlers[path](given, exchange)
        except Refused as error:
            exchange.reply(error.status, dumps({"error": str(error), "reason": error.reason}))

    def warm(self, contexts: list[Json]) -> None:
        """Start the contexts that the sandbox has from its start; one that can't be is started by its first use."""
        threads = cpus_of(_CGROUP)
        for given in contexts:
            context = Context(self, given["language"], {"threads": threads, **given})  # the default one of its language
            try:
                context.start()
            except Refused:
                continue
            self._all[context.name] = context

    def program(self, language: str) -> bytes:
        """Return the image's interpreter. Raises Refused."""
        folders = self.environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":")
        for name in _PROGRAMS[language]:
            for folder in folders:
                path = os.path.join(folder, name.encode())
                if os.access(path, os.X_OK) and not os.path.isdir(path):
                    return path
        names = " or ".join(f"`{name}`" for name in _PROGRAMS[language])
        raise Refused(422, "NoInterpreter", f"the image has no {names}: contexts of {language} need it in the PATH")

    def _list(self, exchange: Exchange) -> None:
        exchange.reply(200, dumps({"contexts": [context.facts() for context in self._all.values()]}))

    def _context(self, given: Json) -> Context:
        name = given.get("context")
        context = self._all.get(name) if isinstance(name, str) else None
        if context is None:
            raise Refused(404, "NotFound", f"there is no context `{str(name)[:64]}`")
        return context

    def _new(self, given: Json, name: Any) -> Context:
        """Check a request for a new context. Raises Refused."""
        language, most = given.get("language"), given.get("most", MOST)
        if language not in LANGUAGES:
            raise Refused(422, "NoLanguage", f"language: `{str(language)[:40]}` is not one of {', '.join(LANGUAGES)}")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(400, "BadRequest", "name: must be lower-case letters, digits and `-`, at most 63")
        if name in self._all:
            raise Refused(409, "Exists", f"context `{name}` exists; take another name, or delete it")
        if not isinstance(most, int) or len(self._all) >= most:
            raise Refused(
                429, "TooMany", f"there are {len(self._all)} contexts, the most there may be; delete one of them"
            )
        if not isinstance(given.get("cwd", ""), str) or "\0" in given.get("cwd", ""):
            raise Refused(400, "BadRequest", "cwd: must be a path")
        _check_environment(given.get("env", {}))
        threads, imports = given.get("threads", 0), given.get("imports", [])
        if not isinstance(threads, int) or not 0 <= threads <= 4096 or not isinstance(imports, list):
            raise Refused(400, "BadRequest", "threads and imports: are not of their form")
        return Context(self, name, given)

    def _create(self, given: Json, exchange: Exchange) -> None:
        context = self._new(given, given.get("name"))
        context.start()
        self._all[context.name] = context
        self._answer_when_ready(context, exchange, 201)

    def _answer_when_ready(self, context: Context, exchange: Exchange, status: int) -> None:
        def ready(problem: str) -> None:
            if problem:
                self._all.pop(context.name, None)
                message = f"the interpreter of context `{context.name}` did not start: {problem}"
                exchange.reply(503, dumps({"error": message, "reason": "NotStarted"}))
            else:
                exchange.reply(status, dumps(context.facts()))

        if context.state == "idle":
            ready("")
        else:
            context.waiting.append(ready)

    def _execute(self, given: Json, exchange: Exchange) -> None:
        code, env, timeout = given.get("code"), given.get("env", {}), given.get("timeout", 0)
        name = given.get("execution")
        if not isinstance(code, str) or not isinstance(name, str) or not 0 < len(name) <= 64:
            raise Refused(400, "BadRequest", "code and execution: must be texts")
        if len(code) > MOST_CODE:
            raise Refused(
                413, "TooLarge", f"code: has {len(code)} characters; at most {MOST_CODE} are taken: use a file"
            )
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout <= 1e7:
            raise Refused(400, "BadRequest", "timeout: must be seconds")
        _check_environment(env)
        if given.get("language") is not None and given.get("context") not in self._all:
            context = self._new(given, given.get("context"))
            context.start()
            self._all[context.name] = context
        else:
            context = self._context(given)
        context.execute(Execution(exchange, name, code, env, float(timeout)))

    def _complete(self, given: Json, exchange: Exchange) -> None:
        code = given.get("code")
        if not isinstance(code, str) or len(code) > _MOST_COMPLETED:
            raise Refused(400, "BadRequest", f"code: must be text of at most {_MOST_COMPLETED} characters")
        self._context(given).complete(exchange, code)

    def _interrupt(self, given: Json, exchange: Exchange) -> None:
        context = self._context(given)
        exchange.reply(200, dumps({"interrupted": context.interrupt("interrupted")}))

    def _restart(self, given: Json, exchange: Exchange) -> None:
        context = self._context(given)
        context.restart()
        self._answer_when_ready(context, exchange, 200)

    def _delete(self, given: Json, exchange: Exchange) -> None:
        context = self._context(given)
        facts = context.facts()
        context.delete()
        self._all.pop(context.name, None)
        exchange.reply(200, dumps(facts))

    def _fork(self, given: Json, exchange: Exchange) -> None:
        origin = self._context(given)
        copy = self._new({**given, "language": origin.language}, given.get("name"))

        def done(reasons: list[str] | None) -> None:
            if reasons is None:
                self._answer_when_ready(copy, exchange, 201)
                return
            self._all.pop(copy.name, None)
            copy.state = "ended"
            copy.delete()
            message = f"context `{origin.name}` can't be forked: " + "; ".join(reasons)
            exchange.reply(409, dumps({"error": message, "reason": "NoFork", "reasons": reasons}))

        origin.fork(copy, given.get("force") is True, done)
        self._all[copy.name] = copy


def _check_environment(env: Any) -> None:
    if not isinstance(env, dict) or not all(isinstance(value, str) and "\0" not in value for value in env.values()):
        raise Refused(400, "BadRequest", "env: must be an object of texts")
    if not all(name and "=" not in name and "\0" not in name for name in env):
        raise Refused(400, "BadRequest", "env: has a name that is empty or has `=` or NUL")
