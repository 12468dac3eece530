"""process.Process: commands, their input, signals and terminals."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from controller.e2b.envd.processes import OrphanProcess, Process, Processes, Reader, Stdin, label_of, orphan_of
from controller.e2b.envd.workplace import Workplace
from controller.e2b.envs import Variables
from controller.e2b.errors import Ended
from controller.e2b.fields import Fields
from controller.e2b.frames import END, frame
from controller.e2b.parts import Parts, on_thread
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import StreamError
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceError, of_stream

_SIGNALS = {"SIGNAL_SIGTERM": "TERM", "SIGNAL_SIGKILL": "KILL", 15: "TERM", 9: "KILL"}
_MOST_LETTERS = 256
_LOGIN = {"TERM": "xterm-256color"}
Frames = AsyncIterator[bytes]


class ProcessCalls:
    """The calls. Each gets the sandbox and the message."""

    def __init__(self, parts: Parts, processes: Processes, variables: Variables) -> None:
        self._parts, self._processes, self._variables = parts, processes, variables

    async def start(self, place: Workplace, message: Fields, keepalive: float, seconds: float | None) -> Frames:
        """Start a command, and return its events. Leaving does not end it; its time does. Raises ServiceError."""
        config, pty = message.fields("process"), message.fields("pty")
        terminal = "pty" in message
        command = [config.text("cmd"), *config.texts("args")]
        size = pty.fields("size")
        stdin = Stdin() if terminal or message.flag("stdin", True) else None
        env = {**self._variables.of(place.obj.uid), **config.text_map("envs")}
        reader = Reader()
        shape = (size.number("rows", 24, least=1, most=65535), size.number("cols", 80, least=1, most=65535))
        start = partial(
            self._start,
            place,
            command,
            {**(_LOGIN if terminal else {}), **env},
            place.absolute(config.text("cwd", "")) if config.text("cwd", "") else "",
            stdin,
            seconds,
            shape if terminal else None,
            message.text("tag", ""),
            reader,
        )
        process = await on_thread(start)
        return self._events(process, reader, keepalive, None)

    def _start(
        self,
        place: Workplace,
        command: list[str],
        env: Mapping[str, str],
        folder: str,
        stdin: Stdin | None,
        seconds: float | None,
        size: tuple[int, int] | None,
        tag: str,
        reader: Reader,
    ) -> Process:
        self._parts.use(
            place.namespace,
            place.name,
            "exec",
            program=command[0][:_MOST_LETTERS],
            arguments=len(command) - 1,
        )
        config = {"cmd": command[0], "args": command[1:], "envs": {}, **({"cwd": folder} if folder else {})}
        pid = self._processes.next_pid(place.obj.uid)
        open_ = self._parts.services.sandbox_streams.exec(
            SANDBOX,
            place.namespace,
            place.name,
            command,
            env=env,
            working_dir=folder,
            stdin=stdin,
            timeout_seconds=seconds or 0.0,
            tty=size is not None,
            size=size,
            label=label_of(pid, tag, config),
        )
        try:
            return self._processes.start(
                place.obj.uid, pid, config, tag=tag, terminal=size is not None, stdin=stdin, open_=open_, reader=reader
            )
        except StreamError as error:
            raise of_stream(error) from error

    async def connect(self, place: Workplace, message: Fields, keepalive: float, seconds: float | None) -> Frames:
        """Join a running command. Raises NotFound."""
        self._parts.require("use", place.namespace, place.name, "exec")
        reader = Reader()
        process = await self._find(place, message, reader)
        return self._events(process, reader, keepalive, seconds)

    async def _events(self, process: Process, reader: Reader, keepalive: float, seconds: float | None) -> Frames:
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            yield frame({"event": {"start": {"pid": process.pid}}})
            while True:
                remaining = keepalive if deadline is None else min(keepalive, deadline - time.monotonic())
                event = await reader.next(max(0.0, remaining))
                if event is None:
                    if deadline is not None and time.monotonic() >= deadline:
                        raise Ended("the time of this request has passed; the process runs on")
                    yield frame({"event": {"keepalive": {}}})
                    continue
                if isinstance(event, ServiceError):
                    raise event
                yield frame(event)
                if "end" in event["event"]:
                    yield frame({}, END)
                    return
        finally:
            process.leave(reader)

    async def list_all(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Return the running commands of the sandbox."""
        del message
        self._parts.require("use", place.namespace, place.name, "exec")
        running: list[Process | OrphanProcess] = [*self._processes.of(place.obj.uid)]
        pids = {process.pid for process in running}
        orphans = [process for _, process in await on_thread(self._orphans, place) if process.pid not in pids]
        return {
            "processes": [
                {"config": process.config, "pid": process.pid, **({"tag": process.tag} if process.tag else {})}
                for process in (*orphans, *running)
            ]
        }

    def _orphans(self, place: Workplace) -> list[tuple[str, OrphanProcess]]:
        """Return the commands that a daemon before this one left in the sandbox, with the ids of its agent."""
        execs = self._parts.services.sandbox_streams.orphans(SANDBOX, place.namespace, place.name)
        return [(exec_.id, process) for exec_ in execs if (process := orphan_of(exec_.label)) is not None]

    def _joined(self, place: Workplace, pid: int, tag: str, reader: Reader | None) -> Process:
        """Return a command that a daemon before this one left, which is read from now on. Raises NotFound."""
        for id_, orphan in self._orphans(place):
            if orphan.pid == pid or (tag and orphan.tag == tag):
                join = partial(self._parts.services.sandbox_streams.join, SANDBOX, place.namespace, place.name, id_)
                try:
                    return self._processes.join(place.obj.uid, orphan, join, reader)
                except StreamError as error:
                    raise of_stream(error) from error
        raise NotFound(
            f"process with {f'tag {tag[:60]}' if tag else f'pid {pid}'} not found: it has ended, or the daemon was"
            " restarted since: then `paddock execs NAME` lists it if it has stdin or a terminal"
        )

    async def send_input(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Write to a command's stdin, or to its terminal."""
        await self._put(await self._usable(place, message), message)
        return {}

    async def _put(self, process: Process, message: Fields) -> None:
        sent = message.fields("input")
        data = sent.data("pty") if "pty" in sent else sent.data("stdin")
        if process.stdin is None:
            raise Conflict("the process was started without stdin; start it with stdin=True")
        if data:
            await process.stdin.put(data)

    async def stream_input(self, place: Workplace, messages: AsyncIterator[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Write a stream of input: first `start` with the process, then `data`."""
        process: Process | None = None
        async for sent in messages:
            message = Fields(sent)
            if "start" in message:
                process = await self._usable(place, message.fields("start"))
            elif "data" in message:
                if process is None:
                    raise BadRequest("the first message must be `start`, with the process")
                await self._put(process, message.fields("data"))
            elif "keepalive" not in message:
                raise BadRequest("a message must have `start`, `data` or `keepalive`")
        return {}

    async def send_signal(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Send a command SIGTERM or SIGKILL."""
        process = await self._usable(place, message)
        signal = message.text("signal", "") if not _is_number(message, "signal") else message.number("signal", 0)
        if signal not in _SIGNALS:
            raise BadRequest(f"signal: `{str(signal)[:60]}` is not SIGNAL_SIGTERM or SIGNAL_SIGKILL")
        await on_thread(_signal, process, _SIGNALS[signal])
        return {}

    async def close_stdin(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """End a command's stdin."""
        process = await self._usable(place, message)
        if process.stdin is None:
            raise Conflict("the process was started without stdin; start it with stdin=True")
        process.stdin.close()
        return {}

    async def update(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Set the size of a command's terminal; no effect on one that has just ended."""
        self._parts.require("use", place.namespace, place.name, "exec")
        if self._processes.has_just_ended(place.obj.uid, message.fields("process").number("pid", 0)):
            return {}
        process = await self._find(place, message)
        if not process.terminal or process.stream is None:
            raise Conflict("the process has no terminal; create one by `pty.create`")
        size = message.fields("pty").fields("size")
        rows, columns = (size.number(name, 0, least=1, most=65535) for name in ("rows", "cols"))
        try:
            await on_thread(_resize, process, rows, columns)
        except ServiceError:
            if process.has_ended:
                return {}
            raise
        return {}

    async def _usable(self, place: Workplace, message: Fields) -> Process:
        self._parts.require("use", place.namespace, place.name, "exec")
        return await self._find(place, message)

    async def _find(self, place: Workplace, message: Fields, reader: Reader | None = None) -> Process:
        """Return a command by its pid, or by its tag, and let `reader` read it. Raises NotFound."""
        selector = message.fields("process")
        pid, tag = selector.number("pid", 0), selector.text("tag", "")
        process = self._processes.get(place.obj.uid, pid, tag)
        if process is None:
            return await on_thread(self._joined, place, pid, tag, reader)
        if reader is not None:
            process.join(reader)
        return process


def _is_number(message: Fields, name: str) -> bool:
    try:
        message.number(name, 0)
    except BadRequest:
        return False
    return True


def _signal(process: Process, name: str) -> None:
    _translated(partial(process.signal, name))


def _resize(process: Process, rows: int, columns: int) -> None:
    _translated(partial(process.resize, rows, columns))


def _translated(do: Callable[[], None]) -> None:
    try:
        do()
    except StreamError as error:
        raise of_stream(error) from error
