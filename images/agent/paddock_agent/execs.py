"""Execs: commands with bounded output, time-outs and a supervisor each."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import socket
import time
from collections import OrderedDict

from . import supervisor
from .loop import Loop, Timer
from .replies import STREAM_LIMIT, Reply, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable
    from typing import Any


_PART = STREAM_LIMIT // 2
_READ = 64 * 1024
_KEPT = 16  # execs in the background that have ended and may still be asked for
_KEPT_BYTES = 2 * 1024 * 1024


class Output:
    """One stream: its head and its tail, and a count of all."""

    __slots__ = ("_head", "_tail", "total")

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = _PART - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * _PART:  # seldom, so that an endless stream costs no copying
                del self._tail[: len(self._tail) - _PART]

    @property
    def held(self) -> int:
        return len(self._head) + len(self._tail)

    def text(self, limit: int) -> tuple[str, bool]:
        """Return the text within LIMIT bytes, and if something was left out between its head and its tail."""
        if self.total <= min(limit, 2 * _PART):
            return (self._head + self._tail).decode("utf-8", "replace"), False
        half = max(limit // 2, 1)
        head = self._head[:half]
        tail = (self._head + self._tail)[-half:]
        left = self.total - len(head) - len(tail)
        first, last = head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return f"{first}\n[... {left} bytes left out ...]\n{last}", True


class Exec:
    """One command, from its start until its result has been asked for."""

    def __init__(self, number: int, words: list[str], background: bool) -> None:
        self.id = f"exec-{number}"
        self.words = words
        self.background = background
        self.started = time.monotonic()
        self.ended: float | None = None
        self.status: int | None = None  # wait status
        self.error = ""
        self.ended_by = ""  # timeout, idle timeout, kill
        self.outputs = (Output(), Output())
        self.waiting: list[Callable[[], None]] = []
        self.control: socket.socket | None = None
        self.streams: dict[int, Output] = {}
        self.stdin: tuple[int, memoryview] | None = None
        self.timeout: Timer | None = None
        self.idle: Timer | None = None
        self.idle_seconds = 0.0
        self.last_output = self.started

    @property
    def running(self) -> bool:
        return self.ended is None

    @property
    def exit_code(self) -> int | None:
        if self.error:
            return 127
        if self.status is None:
            return None
        if os.WIFSIGNALED(self.status):
            return 128 + os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status)

    def reply(self) -> Reply:
        code = self.exit_code
        return Reply(self._render, failed=bool(self.error or self.ended_by or code), exit_code=code)

    def _render(self, limit: int) -> tuple[dict[str, Any], str]:
        out, out_cut = self.outputs[0].text(limit)
        err, err_cut = self.outputs[1].text(limit)
        facts = {
            **self.facts(),
            "stdout": out,
            "stderr": err,
            "stdoutBytes": self.outputs[0].total,
            "stderrBytes": self.outputs[1].total,
            "truncated": out_cut or err_cut,
        }
        said = [each for each in (out, err) if each]
        if self.error:
            said.append(self.error)
        elif self.ended_by:
            said.append(f"[killed: {self.ended_by}]")
        elif self.running:
            said.append(f"[{self.id} is running; ask with exec.get]")
        elif self.exit_code:
            said.append(f"[exit code {self.exit_code}]")
        return facts, "\n".join(said)

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "id": self.id,
            "running": self.running,
            "exitCode": self.exit_code,
            "durationMs": int(((self.ended or time.monotonic()) - self.started) * 1000),
        }
        if self.error:
            facts["error"] = self.error
        if self.ended_by:
            facts["endedBy"] = self.ended_by
        if self.status is not None and os.WIFSIGNALED(self.status):
            facts["signal"] = signal_name(os.WTERMSIG(self.status))
        return facts


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


class Execs:
    """All execs of the agent; a bounded number runs at the same time."""

    def __init__(self, loop: Loop, most: int, environment: dict[bytes, bytes]) -> None:
        self._loop = loop
        self._most = most
        self._environment = environment
        self._count = 0
        self._all: OrderedDict[str, Exec] = OrderedDict()

    def start(
        self,
        command: list[str],
        folder: int,
        *,
        environment: dict[str, str],
        stdin: bytes = b"",
        timeout: float,
        idle: float = 0,
        background: bool = False,
    ) -> Exec:
        """Start a command in the open FOLDER, which is closed here."""
        try:
            running = sum(each.running for each in self._all.values())
            if running >= self._most:
                raise ToolError(
                    f"{running} execs are running, the most there may be; wait for one or end it with exec.kill"
                )
            given = dict(self._environment)
            given.update((os.fsencode(name), os.fsencode(value)) for name, value in environment.items())
            self._count += 1
            run = Exec(self._count, command, background)
            self._fork(run, [os.fsencode(word) for word in command], folder, given, stdin)
        except UnicodeEncodeError:
            raise ToolError("command: is not valid text") from None
        finally:
            os.close(folder)
        self._all[run.id] = run
        run.timeout = self._loop.after(timeout, lambda: self._over(run, f"timeout of {timeout:g} s"))
        if idle:
            run.idle_seconds = idle
            run.idle = self._loop.after(idle, lambda: self._idle(run))
        return run

    def _fork(
        self, run: Exec, command: list[bytes], folder: int, environment: dict[bytes, bytes], stdin: bytes
    ) -> None:
        run.control, out_read, err_read, in_write = launch(command, folder, environment, bool(stdin))
        self._loop.watch(run.control.fileno(), lambda: self._report(run))
        for fd, output in ((out_read, run.outputs[0]), (err_read, run.outputs[1])):
            run.streams[fd] = output
            self._loop.watch(fd, functools.partial(self._readable, run, fd))
        if in_write >= 0:
            run.stdin = (in_write, memoryview(stdin))
            self._loop.watch(in_write, None, lambda: self._writable(run))

    def _readable(self, run: Exec, fd: int) -> None:
        self._take(run, fd)

    def _take(self, run: Exec, fd: int) -> bool:
        """Take what is there; return if there may be more."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._loop.forget(fd)
            os.close(fd)
            del run.streams[fd]
            return False
        run.streams[fd].add(data)
        run.last_output = time.monotonic()
        return True

    def _writable(self, run: Exec) -> None:
        if run.stdin is None:
            return
        fd, left = run.stdin
        try:
            left = left[os.write(fd, left[:_READ]) :]
        except BlockingIOError:
            return
        except OSError:
            left = left[:0]  # the command does not read any more
        run.stdin = (fd, left)
        if not left:
            self._close_stdin(run)

    def _close_stdin(self, run: Exec) -> None:
        if run.stdin is not None:
            self._loop.forget(run.stdin[0])
            os.close(run.stdin[0])
            run.stdin = None

    def _report(self, run: Exec) -> None:
        assert run.control is not None
        try:
            message = run.control.recv(supervisor.MESSAGE_SIZE)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        kind, value = supervisor.unpack(message) if len(message) == supervisor.MESSAGE_SIZE else (supervisor.EXITED, 9)
        if kind == supervisor.FAILED:
            run.error = _start_error(run.words[0], value)
        else:
            run.status = value
        self._finish(run)

    def _finish(self, run: Exec) -> None:
        """Take the output that is in the pipes; whoever still holds them has been left in the background."""
        for fd in list(run.streams):
            rounds = 0
            while rounds < 64 and self._take(run, fd):
                rounds += 1
        for fd in list(run.streams):
            self._loop.forget(fd)
            os.close(fd)
        run.streams.clear()
        self._close_stdin(run)
        if run.control is not None:
            self._loop.forget(run.control.fileno())
            run.control.close()
            run.control = None
        self._loop.cancel(run.timeout)
        self._loop.cancel(run.idle)
        run.timeout = run.idle = None
        run.ended = time.monotonic()
        waiting, run.waiting = run.waiting, []
        for callback in waiting:
            callback()
        if not run.background:
            self._all.pop(run.id, None)
        self._tidy()

    def _tidy(self) -> None:
        """Forget the oldest results beyond what is kept."""
        ended = [each for each in self._all.values() if not each.running]
        held = sum(output.held for each in ended for output in each.outputs)
        while ended and (len(ended) > _KEPT or held > _KEPT_BYTES) and len(ended) > 1:
            oldest = ended.pop(0)
            held -= sum(output.held for output in oldest.outputs)
            del self._all[oldest.id]

    def _over(self, run: Exec, reason: str) -> None:
        if run.running and not run.ended_by:
            run.ended_by = reason
        self._order(run, b"K")

    def _idle(self, run: Exec) -> None:
        left = run.last_output + run.idle_seconds - time.monotonic()
        if left <= 0:
            self._over(run, f"no output for {run.idle_seconds:g} s")
        else:
            run.idle = self._loop.after(left, lambda: self._idle(run))

    @staticmethod
    def _order(run: Exec, order: bytes) -> None:
        if run.control is not None:
            with contextlib.suppress(OSError):  # the supervisor has ended: its report is on the way
                run.control.send(order)

    def kill(self, run: Exec, number: int) -> None:
        """Send a signal to the command's group; SIGKILL goes to every descendant."""
        if number == signal.SIGKILL:
            self._over(run, "exec.kill")
        else:
            self._order(run, b"S" + bytes([number]))

    def cancel(self, run: Exec) -> None:
        """End an exec whose caller has gone."""
        run.waiting.clear()
        self._over(run, "the caller disconnected")

    def get(self, name: str) -> Exec:
        run = self._all.get(name)
        if run is None:
            raise ToolError(f"{name}: no such exec; exec.list shows them (of those that have ended {_KEPT} are kept)")
        return run

    def all(self) -> list[Exec]:
        return list(self._all.values())


def launch(
    command: list[bytes],
    folder: int,
    environment: dict[bytes, bytes],
    stdin: bool,
    stay: bool = False,
    events: int = -1,
) -> tuple[socket.socket, int, int, int]:
    """Fork a supervisor for a command; return its socket, and our ends of the command's streams (stdin: or -1).

    None of them blocks. The open FOLDER and EVENTS stay the caller's. Raises ToolError.
    """
    ours, theirs = socket.socketpair()
    opened: list[int] = []
    try:
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        opened += (out_read, out_write)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        opened += (err_read, err_write)
        if stdin:
            in_read, in_write = os.pipe2(os.O_CLOEXEC)
            opened += (in_read, in_write)
        else:
            in_read, in_write = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), -1
            opened.append(in_read)
        if os.fork() == 0:
            supervisor.run(theirs.fileno(), (in_read, out_write, err_write), command, folder, environment, stay, events)
    except OSError as error:
        for fd in opened:
            os.close(fd)
        ours.close()
        reason = (
            "the sandbox has no process left (its limit of pids)"
            if error.errno == errno.EAGAIN
            else os.strerror(error.errno or 0)
        )
        raise ToolError(f"the command can't be started: {reason}; end another exec or raise the limit") from None
    finally:
        theirs.close()
    for fd in (in_read, out_write, err_write):
        os.close(fd)
    ours.setblocking(False)
    for fd in (out_read, err_read, *([in_write] if in_write >= 0 else [])):
        os.set_blocking(fd, False)
    return ours, out_read, err_read, in_write


def _start_error(program: str, number: int) -> str:
    reason = {
        errno.ENOENT: "not found; is it installed in this image?",
        errno.EACCES: "not executable, or permission denied",
        errno.ENOEXEC: "is no program: it lacks a #! line",
        errno.EAGAIN: "the sandbox has no process left (its limit of pids)",
        errno.E2BIG: "arguments and environment are too long",
    }.get(number, os.strerror(number).lower())
    return f"{program}: {reason}"
