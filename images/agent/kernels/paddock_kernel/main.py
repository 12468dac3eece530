"""The kernel's loop: requests of the agent, one cell at a time, on one event loop for the context's life."""

from __future__ import annotations

import array
import gc
import json
import os
import signal
import socket
import sys
import threading
from typing import Any

from .later import loaded_later

with loaded_later():
    import asyncio

from . import forking
from .events import Events, Interrupts, Stream
from .results import error_event

_READ = 256 * 1024
_MOST_MATCHES = 200
_DESCRIPTORS = 3  # of a fork: its socket, and the pipes of its output


class Kernel:
    def __init__(self, connection: socket.socket) -> None:
        self.interrupts = Interrupts()
        self.events = Events(connection, self.interrupts)
        sys.stdout = Stream(self.events, "stdout", 1)  # type: ignore[assignment]
        sys.stderr = Stream(self.events, "stderr", 2)  # type: ignore[assignment]
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
        self.engine, self.engine_name, self.reason = _engine(self.events)
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self._buffer = bytearray()
        self._received: list[int] = []
        self._process = os.getpid()
        self._cell: asyncio.Task[None] | None = None
        self._threads = len(os.listdir("/proc/self/task"))
        self._ended = False

    def serve(self) -> None:
        signal.signal(signal.SIGINT, self.interrupts.arrived)
        self._listen()
        self._ready()
        while not self._ended:
            try:
                self.loop.run_forever()  # code may stop it
            except KeyboardInterrupt:
                self._interrupted()
            except SystemExit:
                continue  # of a task of an earlier cell
            if self.loop.is_closed():
                self.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self.loop)
                self._listen()

    def _ready(self, **more: Any) -> None:
        version = ".".join(map(str, sys.version_info[:3]))
        self.events.send(
            type="ready", pid=os.getpid(), engine=self.engine_name, version=version, reason=self.reason, **more
        )

    def _listen(self) -> None:
        self.loop.add_reader(self.events.connection.fileno(), self._readable)

    def _interrupted(self) -> None:
        """End a cell that only waits: an interrupt within its code was raised there."""
        if self._cell is not None and not self._cell.done():
            self._cell.cancel()

    def _readable(self) -> None:
        with self.interrupts.shielded():
            self._receive()
            lines = self._buffer.split(b"\n")
            self._buffer = lines.pop()
        for line in lines:
            self._request(json.loads(bytes(line)))

    def _receive(self) -> None:
        descriptors = array.array("i")
        space = socket.CMSG_SPACE(_DESCRIPTORS * descriptors.itemsize)
        try:
            data, ancillary, _, _ = self.events.connection.recvmsg(_READ, space)
        except OSError:
            data, ancillary = b"", []
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        self._received += descriptors
        if not data:
            self._ended = True
            os._exit(0)  # the agent has ended this context
        self._buffer += data

    def _request(self, request: dict[str, Any]) -> None:
        if request["op"] == "execute":
            self._cell = self.loop.create_task(self._execute(request))
            self._cell.paddock = True  # type: ignore[attr-defined]
        elif request["op"] == "fork":
            self._fork(request)
        elif request["op"] == "complete":
            self._complete(request)

    def _complete(self, request: dict[str, Any]) -> None:
        """Say how the code may go on. To read an object's attributes may run code of its own: an interrupt ends it."""
        self.events.execution = request["id"]
        replaced, matches = 0, []
        try:
            self.interrupts.cell(True)
            try:
                replaced, matches = self.engine.complete(request["code"])
            finally:
                self.interrupts.cell(False)
        except BaseException:
            replaced, matches = 0, []
        matches = [str(match) for match in matches[:_MOST_MATCHES]]
        self.events.send(type="completions", replaced=replaced, matches=matches)
        self.events.send(type="done", count=self.engine.count)
        self.events.execution = None

    async def _execute(self, request: dict[str, Any]) -> None:
        self.events.execution = request["id"]
        restored = {name: os.environ.get(name) for name in request.get("env", {})}
        os.environ.update(request.get("env", {}))
        engine = self.engine
        interrupted = False
        try:
            self.interrupts.cell(True)
            try:
                await engine.run(request["code"], counted=request.get("counted", True))
            finally:
                self.interrupts.cell(False)
        except asyncio.CancelledError:
            interrupted = True
        except BaseException as error:
            engine.fail(error)
        failure = engine.error
        if os.getpid() != self._process:  # a child that the code has forked: the cell goes on in its parent alone
            self.events.flush()
            os._exit(1 if failure or interrupted else 0)
        if interrupted or (failure and failure["name"] == "CancelledError"):
            failure = error_event("KeyboardInterrupt", "", failure["traceback"] if failure else "")
        for name, value in restored.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if failure:
            self.events.send(type="error", **failure)
        self.events.send(type="done", count=engine.count)
        self.events.execution = None

    def _fork(self, request: dict[str, Any]) -> None:
        descriptors, self._received = self._received[:_DESCRIPTORS], self._received[_DESCRIPTORS:]
        self.events.execution = request["id"]
        known = {0, 1, 2, self.events.connection.fileno(), *descriptors, *forking.loop_descriptors(self.loop)}
        reasons = [] if request.get("force") else forking.obstacles(self.loop, known, self._threads)
        if reasons:
            self.events.send(type="refused", reasons=reasons)
        else:
            if request.get("force"):
                forking.flush_files()
            self._copy(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.events.execution = None

    def _copy(self, request: dict[str, Any], descriptors: list[int]) -> None:
        self.events.flush()
        gc.freeze()  # else the collector would copy the pages that it marks
        with self.events.quiet():
            child = os.fork()
            if child == 0:
                # Forked twice: the copy is nobody's child that code could wait for.
                if os.fork():
                    os._exit(0)
                self._become_copy(request, descriptors)
                return
        self.events.send(type="forked")  # the copy is used while the process between ends: that takes as long as a fork
        gc.unfreeze()
        os.waitpid(child, 0)

    def _become_copy(self, request: dict[str, Any], descriptors: list[int]) -> None:
        os.setsid()
        self._process = os.getpid()
        connection = forking.adopt(list(descriptors))
        descriptors.clear()
        forking.renew_loop(self.loop)
        self.events.connection.close()
        os.environ["PADDOCK_CONTEXT"] = request["context"]
        self._buffer.clear()
        self._received = []
        self.events.use(connection)
        self.events.execution = None
        forking.reseed()
        self._listen()
        self._ready()


def _engine(events: Events) -> tuple[Any, str, str]:
    """Return the engine, its name, and why it is not the better one."""
    reason = ""
    if os.environ.pop("PADDOCK_KERNEL_ENGINE", "") != "basic":
        try:
            with loaded_later():
                from . import shell

                return shell.Engine(events), shell.NAME, ""
        except ImportError as error:
            reason = (
                f"no IPython in the image ({error.name or error}): `%` and `!` lines do not work; `pip install ipython`"
            )
        except Exception as error:
            reason = f"the image's IPython does not start ({type(error).__name__}: {error})"[:300]
    from . import basic

    return basic.Engine(events), basic.NAME, reason


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    threading.current_thread().name = "MainThread"
    Kernel(connection).serve()
