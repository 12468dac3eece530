"""`POST /exec`: a command whose output streams as it comes, byte by byte the same as by the engine's exec.

The daemon's own quick path, not a tool: any working folder, the sandbox's own environment, no limit of output, and an
end only when all who hold the output have closed it. The body: `{"command": [...], "env": {...}, "cwd": "", "stdin":
BASE64, "id": ""}`. The answer is a stream of frames, each a byte (1 stdout, 2 stderr, 3 exit code in digits), three
zeros, the length as four bytes, and the data. It begins once the command runs; one that can't start is refused with its
`errno`.

`POST /exec/kill` with `{"id": ...}` kills every descendant of such a command, and answers when all are gone.

With `"keep": {"label": TEXT, "seconds": N}` a command outlives its caller, at most so long after its start (0: without
end): the newest of its output stays until `POST /exec/join` with its id, whose answer is as that of `/exec`.
`GET /exec` lists such commands while they have no caller. One that has ended meanwhile is forgotten as the oldest of
some.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import socket
import struct
from collections import deque

from . import supervisor
from .execs import launch
from .http import Request
from .loop import Loop, Timer
from .protocol import Exchange, dumps
from .replies import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable
    from typing import Any


_FRAME = struct.Struct(">BxxxL")
_READ = 64 * 1024
_MOST_UNSENT = 256 * 1024
_KIND = "application/vnd.paddock.exec"
_SHELF_BYTES, _SHELF_ENDED, _LABEL_CHARACTERS = 256 * 1024, 16, 256 * 1024


class _Refused(Exception):
    """A body that is not of this form."""


class Direct:
    """The commands of the daemon; a bounded number runs at the same time."""

    def __init__(self, loop: Loop, most: int, environment: dict[bytes, bytes]) -> None:
        self._loop = loop
        self._most = most
        self._environment = environment
        self._runs: dict[_Run, None] = {}  # in the order of their start

    def post(self, request: Request, exchange: Exchange) -> None:
        running = sum(not run.has_ended for run in self._runs)
        if running >= self._most:
            exchange.reply(503, dumps({"error": f"{running} commands are running, the most there may be"}))
            return
        try:
            body = json.loads(request.body)
            command, folder, environment, stdin = self._parts(body)
            keep = _keep_of(body)
        except (_Refused, ValueError, RecursionError) as error:
            exchange.reply(400, dumps({"error": f"the body is not of its form: {error}"}))
            return
        except OSError as error:
            exchange.reply(422, dumps({"error": "the working folder can't be entered", "errno": error.errno}))
            return
        try:
            started = launch(command, folder, environment, bool(stdin), stay=True)
        except ToolError as error:
            exchange.reply(503, dumps({"error": str(error)}))
            return
        finally:
            os.close(folder)
        name = body.get("id", "")
        self._runs[_Run(self._loop, exchange, started, stdin, name, keep, self._over)] = None

    def _over(self, run: _Run) -> None:
        """Forget a command whose answer has ended; of those without a caller the oldest."""
        if run.is_orphan:
            ended_runs = [kept_run for kept_run in self._runs if kept_run.is_orphan and kept_run.has_ended]
            for surplus in ended_runs[: max(0, len(ended_runs) - _SHELF_ENDED)]:
                del self._runs[surplus]
        else:
            self._runs.pop(run, None)

    def orphans(self, exchange: Exchange) -> None:
        """Answer with the commands that have no caller."""
        runs = [
            {"id": run.name, "label": run.keep[0], "running": not run.has_ended}
            for run in self._runs
            if run.keep is not None and run.is_orphan
        ]
        exchange.reply(200, dumps({"commands": runs}))

    def join(self, request: Request, exchange: Exchange) -> None:
        """Answer with what a command without a caller has written, and with what it writes."""
        run = self._named(request, exchange)
        if run is None:
            return
        if not run.is_orphan:
            exchange.reply(409, dumps({"error": "somebody reads this command"}))
            return
        run.join(exchange)

    def kill(self, request: Request, exchange: Exchange) -> None:
        run = self._named(request, exchange)
        if run is None:
            return
        if run.has_ended:
            self._runs.pop(run, None)
            exchange.reply(200, dumps({}))
        else:
            run.kill(lambda: exchange.reply(200, dumps({})))

    def _named(self, request: Request, exchange: Exchange) -> _Run | None:
        """Return the command that a request names; None: it was answered."""
        try:
            name = json.loads(request.body)["id"]
        except (ValueError, RecursionError, TypeError, KeyError):
            exchange.reply(400, dumps({"error": "the body is not of its form"}))
            return None
        run = next((run for run in self._runs if name and run.name == name), None)
        if run is None:
            exchange.reply(404, dumps({"error": "no such command runs"}))
        return run

    def _parts(self, given: Any) -> tuple[list[bytes], int, dict[bytes, bytes], bytes]:
        if not isinstance(given, dict):
            raise _Refused("an object is needed")
        words, added, folder = given.get("command"), given.get("env", {}), given.get("cwd", "")
        if not isinstance(words, list) or not words or not all(isinstance(each, str) for each in words):
            raise _Refused("command")
        if not isinstance(added, dict) or not all(isinstance(each, str) for each in added.values()):
            raise _Refused("env")
        if not isinstance(folder, str):
            raise _Refused("cwd")
        environment = dict(self._environment)
        environment.update((os.fsencode(name), os.fsencode(value)) for name, value in added.items())
        stdin = base64.b64decode(given.get("stdin", ""), validate=True)
        opened = os.open(os.fsencode(folder or "."), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return [os.fsencode(each) for each in words], opened, environment, stdin


def _keep_of(given: Any) -> tuple[str, float] | None:
    """Return the label and the seconds of a command that outlives its caller. Raises _Refused."""
    keep = given.get("keep")
    if keep is None:
        return None
    label, seconds = (keep.get("label"), keep.get("seconds")) if isinstance(keep, dict) else (None, None)
    if not isinstance(label, str) or len(label) > _LABEL_CHARACTERS:
        raise _Refused("keep: label")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1e7:
        raise _Refused("keep: seconds")
    return label, float(seconds)


class _Shelf(Exchange):
    """The answer of a command without a caller: the newest of its frames."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self._size = 0

    def chunk(self, data: bytes) -> None:
        self.frames.append(data)
        self._size += len(data)
        while self._size > _SHELF_BYTES and len(self.frames) > 1:
            self._size -= len(self.frames.popleft())

    def end_chunks(self) -> None:
        """Keep what there is."""

    @property
    def unsent(self) -> int:
        return 0

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Nothing waits."""

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Nobody leaves."""


class _Run:
    """One command, from its start until its last output has been sent or its caller has gone."""

    def __init__(
        self,
        loop: Loop,
        exchange: Exchange,
        started: tuple[socket.socket, int, int, int],
        stdin: bytes,
        name: str,
        keep: tuple[str, float] | None,
        over: Callable[[_Run], None],
    ) -> None:
        self.name = name
        self.keep = keep
        self._loop = loop
        self._exchange = exchange
        self._over = over
        self._control, out, error, self._in = started
        self._streams = {out: 1, error: 2}
        self._stdin = memoryview(stdin)
        self._status: int | None = None
        self._begun = False
        self._killing: list[Callable[[], None]] = []
        self._expiry: Timer | None = loop.after(keep[1], self._expire) if keep is not None and keep[1] else None
        exchange.on_gone(self._be_orphaned)
        loop.watch(self._control.fileno(), self._report)

    @property
    def is_orphan(self) -> bool:
        return isinstance(self._exchange, _Shelf)

    @property
    def has_ended(self) -> bool:
        """True once all has been given back."""
        return self._control.fileno() < 0

    def _be_orphaned(self) -> None:
        if self.keep is None or not self._begun or self.has_ended:
            self._leave()
            return
        self._exchange = _Shelf()
        self._watch()  # a slow caller may have made it wait

    def join(self, exchange: Exchange) -> None:
        """Answer with what is on the shelf, and go on for this caller."""
        shelf, self._exchange = self._exchange, exchange
        exchange.open_chunks(_KIND)
        for frame in shelf.frames if isinstance(shelf, _Shelf) else ():
            exchange.chunk(frame)
        if self.has_ended:
            self._over(self)
            exchange.end_chunks()
        else:
            exchange.on_gone(self._be_orphaned)

    def _expire(self) -> None:
        self._expiry = None
        with contextlib.suppress(OSError):
            self._control.send(b"K")

    def _report(self) -> None:
        try:
            message = self._control.recv(supervisor.MESSAGE_SIZE)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if len(message) != supervisor.MESSAGE_SIZE:  # the supervisor was killed
            self._loop.forget(self._control.fileno())
            message = b""
        kind, value = supervisor.unpack(message) if message else (supervisor.EXITED, 9)
        if kind == supervisor.FAILED and not self._begun:
            self._leave()
            self._exchange.reply(422, dumps({"error": "the command can't be started", "errno": value}))
        elif kind == supervisor.BEGUN:
            self._begin()
        else:
            self._ended(value)

    def _ended(self, status: int) -> None:
        killing, self._killing = self._killing, []
        for callback in killing:
            callback()
        if self._status is None:
            self._begin()
            self._status = status
            self._finish()

    def kill(self, done: Callable[[], None]) -> None:
        """Kill every descendant; DONE is called when none is left."""
        self._killing.append(done)
        try:
            self._control.send(b"K")
        except OSError:
            self._ended(9)

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._exchange.open_chunks(_KIND)
        self._watch()
        if self._in >= 0:
            self._loop.watch(self._in, None, self._writable)

    def _watch(self) -> None:
        for fd in self._streams:
            self._loop.watch(fd, functools.partial(self._readable, fd))

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return
        if not data:
            self._loop.forget(fd)
            os.close(fd)
            del self._streams[fd]
            self._finish()
            return
        self._exchange.chunk(_FRAME.pack(self._streams[fd], len(data)) + data)
        if self._exchange.unsent > _MOST_UNSENT:
            for each in self._streams:
                self._loop.forget(each)
            self._exchange.on_drained(self._watch)

    def _writable(self) -> None:
        try:
            self._stdin = self._stdin[os.write(self._in, self._stdin[:_READ]) :]
        except BlockingIOError:
            return
        except OSError:
            self._stdin = self._stdin[:0]  # the command does not read any more
        if not self._stdin:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._in >= 0:
            self._loop.forget(self._in)
            os.close(self._in)
            self._in = -1

    def _finish(self) -> None:
        """End the answer, if the command has ended and nobody holds its output."""
        if self._status is None or self._streams:
            return
        ended_by = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else 0
        code = b"%d" % (128 + ended_by if ended_by else os.WEXITSTATUS(self._status))
        with contextlib.suppress(OSError):
            self._control.send(b"D")
        self._exchange.chunk(_FRAME.pack(3, len(code)) + code)
        self._leave()
        self._exchange.end_chunks()

    def _leave(self) -> None:
        """Give everything back; the end of its socket makes the supervisor kill what still runs."""
        if self._control.fileno() < 0:
            return
        self._loop.forget(self._control.fileno())
        self._control.close()
        self._loop.cancel(self._expiry)
        for fd in self._streams:
            self._loop.forget(fd)
            os.close(fd)
        self._streams.clear()
        self._close_stdin()
        self._over(self)
        killing, self._killing = self._killing, []
        for callback in killing:
            callback()
