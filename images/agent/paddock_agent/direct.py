"""`POST /exec`: a command whose output streams as it comes, byte by byte the same as by the engine's exec.

The daemon's own quick path, not a tool: any working folder, the sandbox's own environment, no limit of output, and an
end only when all who hold the output have closed it. The body: `{"command": [...], "env": {...}, "cwd": "", "stdin":
BASE64, "id": ""}`. The answer is a stream of frames, each a byte (1 stdout, 2 stderr, 3 exit code in digits), three
zeros, the length as four bytes, and the data. It begins once the command runs; one that can't start is refused with its
`errno`.

`POST /exec/kill` with `{"id": ...}` kills every descendant of such a command, and answers when all are gone.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import socket
import struct

from . import supervisor
from .execs import launch
from .http import Request
from .loop import Loop
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


class _Refused(Exception):
    """A body that is not of this form."""


class Direct:
    """The commands of the daemon; a bounded number runs at the same time."""

    def __init__(self, loop: Loop, most: int, environment: dict[bytes, bytes]) -> None:
        self._loop = loop
        self._most = most
        self._environment = environment
        self._runs: set[_Run] = set()

    def post(self, request: Request, exchange: Exchange) -> None:
        if len(self._runs) >= self._most:
            exchange.reply(503, dumps({"error": f"{len(self._runs)} commands are running, the most there may be"}))
            return
        try:
            given = json.loads(request.body)
            command, folder, environment, stdin = self._parts(given)
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
        name = given.get("id", "")
        self._runs.add(_Run(self._loop, exchange, started, stdin, name, self._runs.discard))

    def kill(self, request: Request, exchange: Exchange) -> None:
        try:
            name = json.loads(request.body)["id"]
        except (ValueError, RecursionError, TypeError, KeyError):
            exchange.reply(400, dumps({"error": "the body is not of its form"}))
            return
        found = next((each for each in self._runs if name and each.name == name), None)
        if found is None:
            exchange.reply(404, dumps({"error": "no such command runs"}))
        else:
            found.kill(lambda: exchange.reply(200, dumps({})))

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


class _Run:
    """One command, from its start until its last output has been sent or its caller has gone."""

    def __init__(
        self,
        loop: Loop,
        exchange: Exchange,
        started: tuple[socket.socket, int, int, int],
        stdin: bytes,
        name: str,
        over: Callable[[_Run], None],
    ) -> None:
        self.name = name
        self._loop = loop
        self._exchange = exchange
        self._over = over
        self._control, out, error, self._in = started
        self._streams = {out: 1, error: 2}
        self._stdin = memoryview(stdin)
        self._status: int | None = None
        self._begun = False
        self._killing: list[Callable[[], None]] = []
        exchange.on_gone(self._leave)
        loop.watch(self._control.fileno(), self._report)

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
        self._leave()
        self._exchange.chunk(_FRAME.pack(3, len(code)) + code)
        self._exchange.end_chunks()

    def _leave(self) -> None:
        """Give everything back; the end of its socket makes the supervisor kill what still runs."""
        if self._control.fileno() < 0:
            return
        self._loop.forget(self._control.fileno())
        self._control.close()
        for fd in self._streams:
            self._loop.forget(fd)
            os.close(fd)
        self._streams.clear()
        self._close_stdin()
        self._over(self)
        killing, self._killing = self._killing, []
        for callback in killing:
            callback()
