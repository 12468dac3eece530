"""ports.Streams: logs and exec. Each stream has a connection of its own, and none can hang the engine.

A stalled client of an exec makes the engine's kill, rm and even inspect of that container hang (moby #41827). So a
thread drains the connection into a queue bounded in bytes. A reader may pause: the command waits for it. But a stream
whose queue is full is cut when the sandbox is to be killed, or once the engine hangs with it, and after an hour.
(The API cuts a client that stalls for long before, and waits for a slow one.)
"""

import math
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from controller.engine.docker.bulkhead import hanging_message
from controller.engine.docker.client import Client
from controller.engine.docker.errors import FOREIGN, Fault
from controller.engine.docker.inspect import belongs_to, labels_of, unix_seconds
from controller.engine.docker.raw_http import HttpStream
from controller.engine.docker.start_errors import in_words
from controller.engine.exec.adopted import DockerAdoptedExecs
from controller.engine.exec.byte_queue import ByteQueue
from controller.engine.exec.command import Escaped, Exec, Request, feed, portable, sized, stream_error
from controller.engine.exec.logs import Answers, LogReader, LogRequest, is_gone
from controller.engine.exec.lost_exit import LOST, ExitEvidence, LostExitWatch
from controller.engine.kernel.cgroups import Cgroups, holds
from controller.engine.kernel.kill import Killer
from controller.engine.observe.observer import OBSERVE_SECONDS, Observer
from controller.engine.observe.stuck_exec import PauseGuard
from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import ChunkStream, ExecStream, ExitLost, NotNow, StreamError

_HEADER = struct.Struct(">BxxxL")
_NAMES = {0: "stdout", 1: "stdout", 2: "stderr"}
_STALL_SECONDS = 3600.0
_BEGINS_SECONDS = 5.0  # for all commands of a sandbox together, before it is paused
_ANSWER_SECONDS = 5.0  # for a call that finishes within milliseconds, on a loaded engine
_SIZED_SINCE = "1.42"
_NOT_STARTED = b"OCI runtime exec failed: "


class _Stream(Iterator[Chunk]):
    """An open stream, for its reader. Closing or dropping it frees the connection."""

    def __init__(self, container_id: str, wire: HttpStream | Answers, queue: ByteQueue | None = None) -> None:
        self.container_id = container_id
        self.wire = wire
        self.queue = queue or ByteQueue()

    def __next__(self) -> Chunk:
        return self.queue.get()

    def close(self) -> None:
        """Close it. From any thread, idempotent."""
        self.queue.clear()
        self.wire.cut()

    def __del__(self) -> None:
        self.close()

    def lose(self, message: str) -> None:
        """Cut the stream with an error for its reader."""
        self.queue.end(error=StreamError(message))
        self.wire.cut()


class _ExecStream(_Stream):
    """Stream of a command, with control of the command."""

    def __init__(self, container_id: str, wire: HttpStream, running: Exec) -> None:
        super().__init__(container_id, wire)
        self.resize, self.signal = running.resize, running.signal
        self._running, self._connection = running, wire

    @property
    def ref(self) -> ExecRef:
        """See ports.DetachableExec."""
        return self._running.ref

    def detach_stream(self) -> None:
        """See ports.DetachableExec."""
        self._running.detach_stream()
        self.lose("detached from the command; it runs on")

    def close(self) -> None:
        """Close it, which kills a command that still runs: also one whose connection broke before its end."""
        super().close()
        if self._connection.released and not self._running.settled:
            threading.Thread(target=self._running.abandon, name="engine-abandon", daemon=True).start()


class DockerStreams:
    """ports.Streams over one engine. Every request first checks that the container is ours."""

    def __init__(
        self,
        instance_id: str,
        client: Client,
        cgroups: Cgroups,
        container_of: Callable[[str], Container | None] = lambda _: None,
        observer: Observer | None = None,
    ) -> None:
        """`container_of` returns a container of ours as last observed, None if it never was.

        `observer` is notified of exec starts and of containers that hang.
        """
        self._observer = observer
        self._instance_id, self._known, self._proc = instance_id, container_of, cgroups.proc
        self._client = client
        self._killer = Killer(cgroups)
        self.adopted_execs = DockerAdoptedExecs(client, self._killer, container_of)
        self._lost_exits = LostExitWatch()
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[_Stream] = weakref.WeakSet()
        self._running: weakref.WeakSet[Exec] = weakref.WeakSet()  # the thread that reads its output keeps each alive
        self._pause_guard = PauseGuard()
        if observer is not None:
            observer.on_hang(self.cut_stalled)

    def logs(
        self,
        container_id: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        until: float | None = None,
        timestamps: bool = False,
    ) -> ChunkStream:
        run = self._inspect(container_id)["State"]
        request = LogRequest(follow and bool(run["Running"]), tail, since, until, timestamps)
        queue, answers = ByteQueue(), Answers()
        reader = LogReader(
            request,
            lambda params: answers.next(self._log(container_id, params)),
            ended_at=lambda: self._ended_at(container_id, run),
            queue=queue,
        )
        first = reader.first()
        stream = self._register(_Stream(container_id, answers, queue))
        # A slow reader of logs hangs nothing: its relay waits for it.
        _relay(
            answers,
            queue,
            max_wait_seconds=None,
            last=tuple,
            on_abandon=lambda: None,
            chunks=lambda _: reader.chunks(first),
        )
        return stream

    def _log(self, container_id: str, params: Mapping[str, str]) -> HttpStream:
        path, all_params = f"/containers/{container_id}/logs", {"stdout": "1", "stderr": "1", **params}
        return self._start(
            "containers.logs", "GET", path, params=all_params, container=container_id, timeout_seconds=_ANSWER_SECONDS
        )

    def _ended_at(self, container_id: str, run: Mapping[str, Any]) -> float | None:
        """Return the time up to which the log is that of a run, None while it goes on."""
        try:
            now = self._inspect(container_id)["State"]
        except StreamError as error:
            if is_gone(error):
                return math.inf
            raise
        if now["StartedAt"] == run["StartedAt"]:
            return None if now["Running"] else math.inf
        # The run after it is in the same log: it is cut in the pause between them, as its last lines may be read late.
        return (unix_seconds(now["FinishedAt"]) + unix_seconds(now["StartedAt"])) / 2

    def inspect(self, container_id: str) -> Mapping[str, Any]:
        return self._inspect(container_id)

    def exec(
        self,
        container_id: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        user: str = "",
        stdin: Iterable[bytes] | None = None,
        timeout_seconds: float | None = None,
        tty: bool = False,
        size: tuple[int, int] | None = None,
        escaped: Escaped | None = None,
        prepared: Callable[[ExecRef], None] | None = None,
        hangs_up: bool = False,
    ) -> ExecStream:
        init_pid = self._init_pid(container_id)
        command = portable(command)
        if tty and size is not None and self._is_sized_inside(container_id, init_pid):
            command = sized(command, size)
        request = Request(
            container_id=container_id,
            init_pid=init_pid,
            command=command,
            env=env or {},
            working_dir=working_dir,
            user=user,
            stdin=stdin is not None,
            tty=tty,
            size=size,
            hangs_up=hangs_up,
        )
        with self._pause_guard.command(container_id):
            exec_id = self._create(container_id, request.body())
            if prepared is not None:
                prepared(request.ref(exec_id))
            path, start = f"/exec/{exec_id}/start", {"Detach": False, "Tty": tty}
            wire = self._start("exec.start", "POST", path, container=container_id, body=start, upgrade=True)
            running = Exec(self._client, self._killer, request, exec_id, wire)
            with self._lock:
                self._running.add(running)
        stream = _ExecStream(container_id, wire, running)
        self._register(stream)
        running.expire_after(timeout_seconds, escaped)
        if self._observer is not None:
            self._observer.beginning(container_id, running.has_begun)
        self._watch(running, stream.queue, wire)
        _relay(
            wire,
            stream.queue,
            max_wait_seconds=None if hangs_up else _STALL_SECONDS,
            last=running.last_chunks,
            on_abandon=running.abandon,
            chunks=partial(_command_chunks, running, self._image(container_id), tty),
        )
        if tty and size is not None:  # an engine before API 1.42 has ignored it
            threading.Thread(target=_resized, args=(running, *size), name="engine-size", daemon=True).start()
        if stdin is not None:
            threading.Thread(target=feed, args=(wire, stdin, tty), name="engine-stdin", daemon=True).start()
        return stream

    def _watch(self, running: Exec, queue: ByteQueue, wire: HttpStream) -> None:
        """End the stream if the engine loses the command's exit; the stream itself may be dropped meanwhile."""

        def lost() -> None:
            running.detach_stream()  # what it left runs on, as after any end
            queue.end(error=ExitLost(LOST))
            wire.cut()

        evidence = ExitEvidence(running.ref, self._proc, self._known)
        self._lost_exits.add(
            evidence, running.state, has_ended=lambda: running.has_ended, is_stalled=lambda: queue.full, lost=lost
        )

    def cut_stalled(self, container_id: str) -> None:
        """Cut the stalled streams of a container that hangs, or is to be killed: they would hang the kill."""
        for stream in self._streams():
            if stream.container_id == container_id and stream.queue.full:
                stream.lose("the output was not read while the sandbox was being stopped, or hung; retry")

    @contextmanager
    def pausing(self, container_id: str) -> Iterator[None]:
        """Held while a container is paused: requested commands have started, and no new one starts.

        The wait is bounded; stuck_exec.py handles a command that does not start in time.
        """
        with self._pause_guard.pause(container_id):
            with self._lock:
                running = [command for command in self._running if command.ref.container_id == container_id]
            deadline = time.monotonic() + _BEGINS_SECONDS
            for command in running:
                command.wait_until_begun(deadline)
            yield

    def close(self) -> None:
        """Cut every stream, and wait until the commands are killed: the caller's process may end with its threads."""
        self._lost_exits.close()
        for stream in self._streams():
            stream.lose("the daemon is stopping; retry once it is back")
        with self._lock:
            running = list(self._running)
        deadline = time.monotonic() + _ANSWER_SECONDS
        for command in running:
            command.wait_until_ended(deadline)

    def _streams(self) -> list[_Stream]:
        with self._lock:
            return list(self._open)

    def _register(self, stream: _Stream) -> _Stream:
        with self._lock:
            self._open.add(stream)
        return stream

    def _init_pid(self, container_id: str) -> int:
        """Return the pid of its first process; the engine is called only where the host's /proc lacks it."""
        container = self._known(container_id)
        if (
            container is not None
            and container.state is State.RUNNING
            and holds(container.pid, container_id, self._proc)
        ):
            return container.pid
        return int(self._inspect(container_id)["State"].get("Pid") or 0)

    def _image(self, container_id: str) -> str:
        """Return the image of a container as its spec names it; "" if it was not observed."""
        container = self._known(container_id)
        return container.image if container is not None else ""

    def _is_sized_inside(self, container_id: str, init_pid: int) -> bool:
        """Tell whether a shell of the image has to set the size of a terminal, so that its program begins with it."""
        with self._answering(container_id, may_have_begun=False):
            by_engine = self._client.speaks(_SIZED_SINCE)
        return not by_engine and os.path.lexists(self._proc / str(init_pid) / "root/bin/sh")

    def _inspect(self, container_id: str) -> Mapping[str, Any]:
        with self._answering(container_id, may_have_begun=False):
            data = self._client.inspect(container_id, timeout_seconds=OBSERVE_SECONDS)
        if not belongs_to(labels_of(data), self._instance_id):
            raise StreamError(f"container {container_id[:12]}: not managed by Paddock; it is never touched")
        return data

    def _create(self, container_id: str, body: Mapping[str, Any]) -> str:
        path = f"/containers/{container_id}/exec"
        with self._answering(container_id, may_have_begun=False):
            answer = self._client.post(
                "exec.create", path, body, container=container_id, timeout_seconds=_ANSWER_SECONDS
            )
        return str(answer["Id"])

    def _start(self, operation: str, method: str, path: str, *, container: str, **request: Any) -> HttpStream:
        with self._answering(container):
            wire = self._client.stream(operation, method, path, container=container, **request)
        wire.wait_at_most(None)
        return wire

    @contextmanager
    def _answering(self, container_id: str, *, may_have_begun: bool = True) -> Iterator[None]:
        """Held during a call. Raises StreamError, at once for a container that hangs.

        `may_have_begun`: a call without an answer may have begun something.
        """
        container = self._known(container_id)
        if container is not None and container.state is State.UNKNOWN:
            raise NotNow(hanging_message(container_id))
        try:
            yield
        except Fault as fault:
            if fault.kind == "timeout" and self._observer is not None and not self._observer.free(container_id):
                self._observer.doubt(container_id)
            raise stream_error(fault, may_have_begun=may_have_begun) from fault


def _resized(running: Exec, rows: int, columns: int) -> None:
    with suppress(StreamError):
        running.resize_first(rows, columns)


def _relay(
    wire: HttpStream | Answers,
    queue: ByteQueue,
    *,
    max_wait_seconds: float | None,
    last: Callable[[], Iterable[Chunk]],
    on_abandon: Callable[[], None],
    chunks: Callable[[Callable[[], bytes]], Iterator[Chunk]] | None = None,
) -> None:
    """Start the thread that relays the connection into the queue, and closes both.

    `last` returns the last chunks; `on_abandon` is called instead if the reader has gone before the end.
    """

    def pass_on() -> None:
        try:
            for chunk in (chunks or frames)(wire.read):
                if not queue.put(chunk, max_wait_seconds):
                    queue.end(error=StreamError(f"the output was not read for {max_wait_seconds} s; retry"))
                    break
        except (StreamError, *FOREIGN):
            if not queue.has_ended:  # a cut connection may also fail with an error
                raise

    def run() -> None:
        try:
            pass_on()
            if queue.has_ended:
                on_abandon()
            else:
                queue.end(*last())
        except StreamError as error:
            queue.end(error=error)
        except FOREIGN as error:
            queue.end(error=StreamError(f"the stream broke: {error}"))
        finally:
            wire.release()

    threading.Thread(target=run, name="engine-stream", daemon=True).start()


def _command_chunks(running: Exec, image: str, tty: bool, read: Callable[[], bytes]) -> Iterator[Chunk]:
    """Yield the chunks of a command. A start error, which the engine sends on stdout, becomes words on stderr.

    On a terminal, which has one stream, the words are on that.
    """
    chunks = raw(read) if tty else frames(read)
    first = next(chunks, None)
    if first is None:
        return
    if not (first.data.startswith(_NOT_STARTED) and running.never_began()):
        yield first
        yield from chunks
        return
    text = b"".join((first.data, *(chunk.data for chunk in chunks))).decode(errors="replace")
    message = f"{in_words(text, image)}\n".encode()
    yield Chunk("stdout", message.replace(b"\n", b"\r\n")) if tty else Chunk("stderr", message)


def raw(read: Callable[[], bytes]) -> Iterator[Chunk]:
    """Yield the output of a terminal: one stream, without frames."""
    while data := read():
        yield Chunk("stdout", data)


def frames(read: Callable[[], bytes]) -> Iterator[Chunk]:
    """Demultiplex the engine's stream: 8 bytes of header (stream, length), then the data.

    `read` returns available bytes, b"" at the end. Data are yielded as they arrive, a long frame in several chunks.
    """
    received, at, bytes_left, name = (
        b"",
        0,
        0,
        "",
    )  # `at`: the rest is copied once a piece, however small the frames are
    while piece := read():
        received, at = received[at:] + piece, 0
        while bytes_left or len(received) - at >= _HEADER.size:
            if not bytes_left:
                kind, bytes_left = _HEADER.unpack_from(received, at)
                at += _HEADER.size
                name = _NAMES.get(kind, "error")
                continue
            if at == len(received):
                break
            data = received[at : at + bytes_left]
            at += len(data)
            bytes_left -= len(data)
            if name == "error":
                raise StreamError(data.decode(errors="replace"))
            yield Chunk(name, data)
