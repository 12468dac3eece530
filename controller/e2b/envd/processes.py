"""Commands of this protocol: they outlive the request that started them, and any request may join them by their pid.

The daemon gives the pids: those of the sandbox belong to its own namespace. A command is read on a thread of its own; a
reader that is slow makes it wait. What it writes while nobody reads is dropped, as E2B does.
"""

import asyncio
import base64
import json
import queue
import secrets
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from controller.kinds.common.chunk import Chunk
from controller.ports import StreamError
from controller.service.errors import Conflict, ServiceError, ServiceUnavailable, TooManyRequests, of_stream
from controller.service.exec.activity import TrackedStream

_AHEAD_BYTES = 256 << 10  # read ahead of a slow reader; then the command waits
_POLL_SECONDS = 5.0
_MOST_READERS = 16  # of one command
_STDIN_PIECES, _STDIN_SECONDS, _STDIN_POLL_SECONDS = 16, 30.0, 0.01
_FIRST_PID = 1 << 16
_BEGIN_SECONDS = 1.0
_MOST_ENDED, _JUST_SECONDS = 1000, 5.0
_OPEN_SECONDS = 30.0
_MOST_LABEL = 200_000
Event = Mapping[str, Any]
_Key = tuple[str, int]  # sandbox and pid
_log = structlog.get_logger("paddock.e2b")


class Timeout(ServiceError):
    """A command's time has passed."""

    reason, code = "Timeout", 504


class Stdin:
    """Input of a command, from any number of requests to the thread that writes it."""

    def __init__(self) -> None:
        self._pieces: queue.Queue[bytes | None] = queue.Queue(_STDIN_PIECES)
        self._closed = False

    async def put(self, data: bytes) -> None:
        """Add a piece; waits while the command does not read, on no thread. Raises Conflict."""
        until = time.monotonic() + _STDIN_SECONDS
        while not self._closed:
            try:
                self._pieces.put_nowait(data)
            except queue.Full:
                if time.monotonic() >= until:
                    message = f"the process has read nothing of its stdin for {_STDIN_SECONDS:g} s"
                    raise Conflict(message) from None
                await asyncio.sleep(_STDIN_POLL_SECONDS)
            else:
                return
        raise Conflict("the stdin of this process is closed")

    def close(self) -> None:
        """End the input."""
        if not self._closed:
            self._closed = True
            threading.Thread(target=self._pieces.put, args=(None,), name="e2b-stdin", daemon=True).start()

    def abandon(self) -> None:
        """Release the thread that waits for input: the command has ended."""
        self._closed = True
        while True:
            try:
                self._pieces.get_nowait()
            except queue.Empty:
                break
        self._pieces.put(None)

    def __iter__(self) -> Iterator[bytes]:
        while (data := self._pieces.get()) is not None:
            yield data


class Reader:
    """One request that reads a command's events, on an event loop."""

    def __init__(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._events: deque[tuple[Event | ServiceError, int]] = deque()
        self._room = threading.Condition()
        self._waiting_bytes, self._left = 0, False

    def offer(self, event: Event | ServiceError, size: int, give_up_seconds: float) -> bool:
        """Queue an event, waiting for a slow reader; False: it has left, or has read nothing for so long."""
        with self._room:
            waited = 0.0
            while self._waiting_bytes >= _AHEAD_BYTES and not self._left:
                before = self._waiting_bytes
                self._room.wait(_POLL_SECONDS)
                waited = waited + _POLL_SECONDS if self._waiting_bytes == before else 0.0
                if waited >= give_up_seconds or self._loop.is_closed():
                    self._left = True
            if self._left:
                return False
            self._events.append((event, size))
            self._waiting_bytes += size
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:  # the loop has ended
            return False
        return True

    async def next(self, seconds: float | None) -> Event | ServiceError | None:
        """Return the next event; None after so many seconds without one."""
        try:
            async with asyncio.timeout(seconds):
                while not self._events:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return None
        with self._room:
            event, size = self._events.popleft()
            self._waiting_bytes -= size
            self._room.notify_all()
        return event

    def leave(self) -> None:
        """Stop reading; the command goes on."""
        with self._room:
            self._left = True
            self._events.clear()
            self._room.notify_all()


@dataclass(slots=True)
class Process:
    """A command that a client of E2B started."""

    uid: str
    """Uid of its sandbox."""
    pid: int
    """Number by which its client knows it."""
    config: Mapping[str, Any]
    """Configuration as its client sent it."""
    tag: str
    """Name that its client gave it; empty: none."""
    terminal: bool
    """It has a terminal."""
    stdin: Stdin | None
    """Its standard input; None: it has none."""
    pause_seconds: float
    """Longest time that it waits for a slow reader."""
    readers: list[Reader] = field(default_factory=list)
    """Clients that follow it."""
    stream: TrackedStream | None = None
    """Stream of the command; None until it has begun."""
    killed: str = ""
    """Signal that ended it."""
    begun: threading.Event = field(default_factory=threading.Event)
    """Set once it has written something, or has ended."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the readers and the last event."""
    _last: Event | ServiceError | None = None
    """Its end, for readers that come later."""

    @property
    def has_ended(self) -> bool:
        """True once its last event is known."""
        return self._last is not None

    def join(self, reader: Reader) -> None:
        """Let a request read what comes from now on. Raises TooManyRequests."""
        with self._lock:
            if len(self.readers) >= _MOST_READERS:
                raise TooManyRequests(f"process {self.pid} has {_MOST_READERS} readers; leave one of them")
            self.readers.append(reader)
            last = self._last
        if last is not None:
            reader.offer(last, 0, 0.0)

    def leave(self, reader: Reader) -> None:
        """Stop reading it."""
        reader.leave()
        with self._lock:
            if reader in self.readers:
                self.readers.remove(reader)

    def read(self, stream: TrackedStream) -> None:
        """Read the command to its end, on the thread that calls."""
        try:
            last = self._read(stream)
        except StreamError as error:
            last = end_event(-1, f"signal: {self.killed}") if self.killed else of_stream(error)
        except Exception as error:
            _log.exception("command reader failed")
            last = ServiceUnavailable(f"internal error: {type(error).__name__}")
        finally:
            self.begun.set()
            if self.stdin is not None:
                self.stdin.abandon()
        with self._lock:
            self._last, readers = last, list(self.readers)  # who joins from now on gets it by `join`
        for reader in readers:
            reader.offer(last, 0, self.pause_seconds)

    def _read(self, stream: TrackedStream) -> Event | ServiceError:
        timed_out = False
        for chunk in stream:
            if chunk.stream == "timeout":
                timed_out = True
            elif chunk.stream == "exit":
                if timed_out:
                    return Timeout("context deadline exceeded: the command's time has passed, and it was killed")
                code = int(chunk.data)
                if self.killed:
                    return end_event(-1, f"signal: {self.killed}")
                return end_event(code, f"exit status {code}")
            elif chunk.data:
                self.begun.set()
                self._emit(self._data(chunk), len(chunk.data))
        return end_event(-1, f"signal: {self.killed or 'killed'}")

    def _data(self, chunk: Chunk) -> Event:
        name = "pty" if self.terminal else chunk.stream
        return {"event": {"data": {name: base64.b64encode(chunk.data).decode()}}}

    def _emit(self, event: Event | ServiceError, size: int) -> None:
        with self._lock:
            readers = list(self.readers)
        for reader in readers:
            if not reader.offer(event, size, self.pause_seconds):
                self.leave(reader)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal. May block. Raises StreamError.

        Some engines set the first size from inside, a moment after the start: it must not come later than this one.
        """
        self.begun.wait(_BEGIN_SECONDS)
        if self.stream is not None:
            self.stream.resize(rows, columns)

    def signal(self, name: str) -> None:
        """Send it a signal; KILL ends all of its processes. May block. Raises StreamError."""
        stream = self.stream
        if stream is None:
            return
        if name == "KILL":
            self.killed = "killed"
            stream.close()
        else:
            stream.signal(name)


@dataclass(frozen=True, slots=True)
class OrphanProcess:
    """A command that a daemon before this one started, and that still runs or has just ended."""

    pid: int
    tag: str
    config: Mapping[str, Any]


class _Opening:
    """A command that is being opened."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Processes:
    """The commands of all sandboxes. Thread-safe.

    Code in a sandbox may write the pids of what is joined there: a pid names a command only together with its sandbox,
    and one that is in use goes to no other command.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self._lock = threading.Lock()
        self._processes: dict[_Key, Process] = {}
        self._opening: weakref.WeakValueDictionary[_Key, _Opening] = weakref.WeakValueDictionary()
        self._ended: OrderedDict[_Key, float] = OrderedDict()  # the last ones, and when
        self._next = _FIRST_PID + secrets.randbelow(1 << 30)

    def next_pid(self, uid: str) -> int:
        """Return a pid that no command of that sandbox has."""
        with self._lock:
            while (uid, self._next) in self._processes:
                self._next += 1
            pid, self._next = self._next, self._next + 1
        return pid

    def start(
        self,
        uid: str,
        pid: int,
        config: Mapping[str, Any],
        *,
        tag: str,
        terminal: bool,
        stdin: Stdin | None,
        open_: Callable[[], TrackedStream],
        reader: Reader | None,
    ) -> Process:
        """Start a command and return it once it runs; blocks. Raises ServiceError; StreamError."""
        process = Process(
            uid=uid,
            pid=pid,
            config=config,
            tag=tag,
            terminal=terminal,
            stdin=stdin,
            pause_seconds=self._pause_seconds,
            readers=[reader] if reader is not None else [],
        )
        with self._alone(uid, pid):
            if self.get(uid, pid, "") is not None:
                raise Conflict(f"process {pid} runs already; start the command again")
            self._open(process, open_)
        return process

    def join(
        self, uid: str, orphan: OrphanProcess, open_: Callable[[], TrackedStream], reader: Reader | None
    ) -> Process:
        """Return the command of an orphan, read from now on; of requests at once, the first opens it.

        Blocks. Raises ServiceError; StreamError.
        """
        with self._alone(uid, orphan.pid):
            process = self.get(uid, orphan.pid, "")
            if process is None:
                process = Process(
                    uid=uid,
                    pid=orphan.pid,
                    config=orphan.config,
                    tag=orphan.tag,
                    terminal=False,
                    stdin=None,
                    pause_seconds=self._pause_seconds,
                    readers=[reader] if reader is not None else [],
                )
                self._open(process, open_)
                return process
        if reader is not None:
            process.join(reader)
        return process

    @contextmanager
    def _alone(self, uid: str, pid: int) -> Iterator[None]:
        """Keep others from opening a command of that pid. Raises ServiceUnavailable."""
        with self._lock:
            opening = self._opening.setdefault((uid, pid), _Opening())
        if not opening.lock.acquire(timeout=_OPEN_SECONDS):
            raise ServiceUnavailable(f"process {pid} is being joined by another request; try again in a moment")
        try:
            yield
        finally:
            opening.lock.release()

    def _open(self, process: Process, open_: Callable[[], TrackedStream]) -> None:
        process.stream = stream = open_()
        with self._lock:
            self._processes[process.uid, process.pid] = process
        threading.Thread(target=self._run, args=(process, stream), name="e2b-process", daemon=True).start()

    def _run(self, process: Process, stream: TrackedStream) -> None:
        try:
            process.read(stream)
        finally:
            stream.close()
            with self._lock:
                self._processes.pop((process.uid, process.pid), None)
                self._ended[process.uid, process.pid] = time.monotonic()
                while len(self._ended) > _MOST_ENDED:
                    self._ended.popitem(last=False)

    def has_just_ended(self, uid: str, pid: int) -> bool:
        """Return True if it was a command of that sandbox a moment ago: a client may not know of its end yet."""
        with self._lock:
            ended_at = self._ended.get((uid, pid))
        return ended_at is not None and time.monotonic() - ended_at < _JUST_SECONDS

    def of(self, uid: str) -> list[Process]:
        """Return the commands of a sandbox, in the order of their start."""
        with self._lock:
            return [process for process in self._processes.values() if process.uid == uid]

    def get(self, uid: str, pid: int, tag: str) -> Process | None:
        """Return a command of a sandbox by its pid, or by its tag; None: this daemon has none."""
        matching = (process for process in self.of(uid) if process.pid == pid or (tag and process.tag == tag))
        return next(matching, None)

    def close(self) -> None:
        """End every reader; the commands are the daemon's to end."""
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            for reader in list(process.readers):
                process.leave(reader)


def label_of(pid: int, tag: str, config: Mapping[str, Any]) -> str:
    """Return what an agent keeps of a command, for the daemon after this one; "" where that is too much."""
    label = json.dumps({"e2b": {"pid": pid, "tag": tag, "config": config}})
    return label if len(label) <= _MOST_LABEL else ""


def orphan_of(label: str) -> OrphanProcess | None:
    """Return the command of a label; None: it is of no such form. Code in a sandbox may write its own."""
    try:
        document = json.loads(label)["e2b"]
        config = {name: document["config"][name] for name in ("cmd", "args", "cwd") if name in document["config"]}
        orphan = OrphanProcess(document["pid"], document["tag"], {**config, "envs": {}})
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if not isinstance(orphan.tag, str) or not isinstance(orphan.pid, int) or not 0 < orphan.pid < 1 << 32:
        return None
    args = orphan.config.get("args", [])
    is_text = isinstance(orphan.config.get("cmd"), str) and isinstance(orphan.config.get("cwd", ""), str)
    return orphan if is_text and isinstance(args, list) and all(isinstance(arg, str) for arg in args) else None


def end_event(code: int, status: str) -> Event:
    """Return the last event of a command that has ended; -1: by a signal."""
    end: dict[str, Any] = {"exitCode": code, "exited": code >= 0, "status": status}
    if code:
        end["error"] = status
    return {"event": {"end": end}}
