"""ports.Streams: logs and exec. Each stream has a connection of its own, and none can hold up the engine.

A client of an exec that stops reading makes the engine's kill, rm and even inspect of that box hang
(moby #41827). So a thread drains the connection into a queue bounded in bytes; a reader that lets the queue stand
full for too long loses its stream, and so does any that stands full when the box is to be killed.
"""

import logging
import os
import signal
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from controller.engine.cgroups import PROC, own_path, parse_paths
from controller.engine.client import Client
from controller.engine.errors import FOREIGN, Fault
from controller.engine.inspect import belongs_to, labels_of
from controller.engine.wire import Wire
from controller.ports import Chunk, ChunkStream, StreamError

log = logging.getLogger(__name__)

TIMED_OUT = 124
_HEADER = struct.Struct(">BxxxL")
_NAMES = {0: "stdout", 1: "stdout", 2: "stderr"}
_QUEUE_BYTES = 1 << 20
_STALL_SECONDS = 10.0
# After the kill, what the dead left in the pipe is read for so long at most (a child may hold it open).
_LAST_WORDS_SECONDS = 1.0
_EXIT_SECONDS = 5.0
_START_SECONDS = 30.0
_POLL_SECONDS = 0.01


class ByteQueue:
    """Chunks from one thread to another, at most so many bytes of them."""

    def __init__(self, limit_bytes: int = _QUEUE_BYTES) -> None:
        self._limit = limit_bytes
        self._changed = threading.Condition()
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._ended = False
        self._error: StreamError | None = None

    @property
    def full(self) -> bool:
        return self._bytes >= self._limit

    @property
    def ended(self) -> bool:
        return self._ended

    def put(self, chunk: Chunk, patience_seconds: float | None) -> bool:
        """Wait for room and add. False: nobody made room in time, or the reader has left."""
        with self._changed:
            self._changed.wait_for(lambda: not self.full or self._ended, patience_seconds)
            if self.full or self._ended:
                return False
            self._chunks.append(chunk)
            self._bytes += len(chunk.data)
            self._changed.notify_all()
            return True

    def end(self, last: Chunk | None = None, error: StreamError | None = None) -> None:
        """Nothing comes after this; what is queued can still be read. The first end counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                if last is not None:
                    self._chunks.append(last)
            self._changed.notify_all()

    def clear(self) -> None:
        """The reader has left."""
        with self._changed:
            self._chunks.clear()
            self._bytes, self._ended, self._error = 0, True, None
            self._changed.notify_all()

    def get(self) -> Chunk:
        """The next chunk. Raises StopIteration at the end, StreamError when it broke."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._ended)
            if self._chunks:
                chunk = self._chunks.popleft()
                self._bytes -= len(chunk.data)
                self._changed.notify_all()
                return chunk
            if self._error is not None:
                raise self._error
            raise StopIteration


class _Stream(Iterator[Chunk]):
    """One open stream as its reader sees it. Closing it, or dropping it, frees the connection."""

    def __init__(self, container_id: str, wire: Wire) -> None:
        self.container_id = container_id
        self.wire = wire
        self.queue = ByteQueue()

    def __next__(self) -> Chunk:
        return self.queue.get()

    def close(self) -> None:
        """May be called from any thread, and again."""
        self.queue.clear()
        self.wire.cut()

    def __del__(self) -> None:
        self.close()

    def lose(self, words: str) -> None:
        """Take the connection away from a reader that does not read."""
        self.queue.end(error=StreamError(words))
        self.wire.cut()


class DockerStreams:
    """ports.Streams over one engine. Every request first makes sure that the container is ours."""

    def __init__(self, instance_id: str, client: Client) -> None:
        self._instance_id = instance_id
        self._client = client
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[_Stream] = weakref.WeakSet()

    def logs(
        self,
        container_id: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> ChunkStream:
        self._inspect(container_id)
        params = {
            "stdout": "1",
            "stderr": "1",
            "follow": str(int(follow)),
            "timestamps": str(int(timestamps)),
            "tail": "all" if tail is None else str(tail),
            **({} if since is None else {"since": f"{since:.9f}"}),
        }
        wire = self._start("containers.logs", "GET", f"/containers/{container_id}/logs", params=params)
        stream = self._register(_Stream(container_id, wire))
        # A reader of logs holds up nobody: its pump waits for it.
        _pump(wire, stream.queue, patience_seconds=None, last=lambda: None, left=lambda: None)
        return stream

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
    ) -> ChunkStream:
        self._inspect(container_id)
        body = {
            "Cmd": list(command),
            "Env": [f"{name}={value}" for name, value in (env or {}).items()],
            "WorkingDir": working_dir,
            "User": user,
            "AttachStdin": stdin is not None,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "Privileged": False,
        }
        exec_id = self._create(container_id, body)
        start = {"Detach": False, "Tty": False}
        wire = self._start("exec.start", "POST", f"/exec/{exec_id}/start", body=start, upgrade=True)
        stream = self._register(_Stream(container_id, wire))
        running = _Exec(self._client, container_id, exec_id, wire)
        running.expire_after(timeout_seconds)
        _pump(wire, stream.queue, patience_seconds=_STALL_SECONDS, last=running.exit_chunk, left=running.abandon)
        if stdin is not None:
            threading.Thread(target=_feed, args=(wire, stdin), name="engine-stdin", daemon=True).start()
        return stream

    def cut_stalled(self, container_id: str) -> None:
        """Before a container is killed: its streams that nobody reads would hang the kill."""
        for stream in self._streams():
            if stream.container_id == container_id and stream.queue.full:
                stream.lose("the output was not read while the sandbox was being stopped; ask again")

    def close(self) -> None:
        """End every stream."""
        for stream in self._streams():
            stream.lose("the daemon is stopping; ask again when it is back")

    def _streams(self) -> list[_Stream]:
        with self._lock:
            return list(self._open)

    def _register(self, stream: _Stream) -> _Stream:
        with self._lock:
            self._open.add(stream)
        return stream

    def _inspect(self, container_id: str) -> None:
        try:
            data = self._client.call("containers.inspect", lambda api: api.inspect_container(container_id))
        except Fault as fault:
            raise _error(fault) from fault
        if not belongs_to(labels_of(data), self._instance_id):
            raise StreamError(f"container {container_id[:12]} is not Paddock's: it is never touched")

    def _create(self, container_id: str, body: Mapping[str, Any]) -> str:
        try:
            made = self._client.post("exec.create", f"/containers/{container_id}/exec", body)
        except Fault as fault:
            raise _error(fault) from fault
        return str(made["Id"])

    def _start(self, operation: str, method: str, path: str, **request: Any) -> Wire:
        try:
            wire = self._client.stream(operation, method, path, **request)
        except Fault as fault:
            raise _error(fault) from fault
        wire.wait_at_most(None)
        return wire


class _Exec:
    """One running command: when its time is over it is killed; its exit code is asked for at the end."""

    def __init__(self, client: Client, container_id: str, exec_id: str, wire: Wire) -> None:
        self._client = client
        self._container_id = container_id
        self._exec_id = exec_id
        self._wire = wire
        self._ended = threading.Event()
        self._timed_out = False
        self._timer: threading.Timer | None = None

    def expire_after(self, seconds: float | None) -> None:
        if seconds is not None:
            self._timer = threading.Timer(seconds, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def exit_chunk(self) -> Chunk:
        """The last chunk. Raises StreamError when the engine does not tell."""
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        code = TIMED_OUT if self._timed_out else self._exit_code()
        return Chunk("exit", str(code).encode())

    def _exit_code(self) -> int:
        deadline = time.monotonic() + _EXIT_SECONDS
        # The output ends a moment before the engine has noted the exit.
        while (state := self._state()).get("Running") and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        code = state.get("ExitCode")
        if state.get("Running") or code is None:
            raise StreamError("the connection to the command was lost; it may still run in the sandbox")
        return int(code)

    def abandon(self) -> None:
        """Its reader has left: a command that nobody hears would use up the box's processes, one call after another."""
        self._kill()
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _kill(self, *, late: bool = False) -> None:
        """Kill it, unless it has ended already; `late` because its time is over."""
        try:
            state = self._started()
        except StreamError:
            state = {}
        if state.get("ExitCode") is None:
            self._timed_out = late
            kill_group(int(state.get("Pid") or 0), self._container_id)

    def _expire(self) -> None:
        self._kill(late=True)
        # What the dead had written is still read; a child that left the group may hold the pipe open for ever.
        self._ended.wait(_LAST_WORDS_SECONDS)
        self._wire.cut()

    def _started(self) -> dict[str, Any]:
        """The state once it has a process: a loaded engine may take longer to start it than its time."""
        deadline = time.monotonic() + _START_SECONDS
        while not (state := self._state()).get("Pid") and state.get("ExitCode") is None:
            if time.monotonic() > deadline or self._ended.is_set():
                break
            time.sleep(_POLL_SECONDS)
        return state

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = self._client.call("exec.inspect", lambda api: api.exec_inspect(self._exec_id))
        except Fault as fault:
            raise _error(fault) from fault
        return state


def kill_group(pid: int, container_id: str) -> bool:
    """Kill the process group that `pid` leads, if it still runs in that container. Closing the stream would not."""
    try:
        paths = parse_paths((PROC / str(pid) / "cgroup").read_text())
        if pid <= 1 or not any(own_path(each, container_id) for each in paths.values()):
            return False
        os.killpg(pid, signal.SIGKILL)
    except OSError as error:
        log.warning("the command (pid %d) in container %s can't be killed: %s", pid, container_id[:12], error)
        return False
    return True


def _pump(
    wire: Wire,
    queue: ByteQueue,
    *,
    patience_seconds: float | None,
    last: Callable[[], Chunk | None],
    left: Callable[[], None],
) -> None:
    """Start the thread that empties the connection into the queue, and closes both.

    `last` gives the last chunk; `left` is called instead when the reader went before the end.
    """

    def run() -> None:
        try:
            for chunk in frames(wire.read):
                if not queue.put(chunk, patience_seconds):
                    queue.end(error=StreamError(f"the output was not read for {patience_seconds} s; ask again"))
                    break
            if queue.ended:
                left()
            else:
                queue.end(last())
        except StreamError as error:
            queue.end(error=error)
        except FOREIGN as error:
            queue.end(error=StreamError(f"the stream broke: {error}"))
        finally:
            wire.release()

    threading.Thread(target=run, name="engine-stream", daemon=True).start()


def _feed(wire: Wire, stdin: Iterable[bytes]) -> None:
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


def frames(read: Callable[[], bytes]) -> Iterator[Chunk]:
    """Take the engine's multiplexed stream apart: 8 bytes of header (stream, length), then the data.

    `read` gives what has come, b"" at the end. Data are passed on as they come, a long frame in several chunks.
    """
    rest, left, name = b"", 0, ""
    while piece := read():
        rest += piece
        while left or len(rest) >= _HEADER.size:
            if not left:
                kind, left = _HEADER.unpack_from(rest)
                rest = rest[_HEADER.size :]
                name = _NAMES.get(kind, "error")
                continue
            if not rest:
                break
            data, rest = rest[:left], rest[left:]
            left -= len(data)
            if name == "error":
                raise StreamError(data.decode(errors="replace"))
            yield Chunk(name, data)


def _error(fault: Fault) -> StreamError:
    if fault.gone:
        return StreamError("the container is gone; ask again once the sandbox is Ready")
    if fault.status == 409:
        return StreamError(f"the sandbox is not running: {fault.words}; ask again once it is Ready")
    return StreamError(fault.words)
