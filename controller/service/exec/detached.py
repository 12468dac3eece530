"""Detached commands: they outlive their client. The daemon keeps part of their output, and their exit.

They outlive the daemon, too: their records and logs are files. A daemon that starts adopts the running ones, waits for
their end and applies their time limit. Output that no daemon read is lost, and the log says so. They count as use of
their sandbox, share its limits with all commands, and end with it. Attached commands that a killed daemon left are
adopted likewise; one with a terminal is ended, since nobody can type into it any more.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from controller.kinds.common.chunk import Chunk
from controller.kinds.registry import Kind, Registry
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.kinds.runtime.secret import Environment
from controller.ports import Clock, ExitLost, NeverStarted, StreamError
from controller.service import errors
from controller.service.access import access
from controller.service.exec.activity import TrackedStream
from controller.service.exec.exec_log import ExecLog
from controller.service.exec.exec_records import DetachedExec, ExecRecords, ExecState, Record, shown_command
from controller.service.exec.streams import SandboxStreams
from controller.service.objects.objects import Objects

# Records on the whole host: each holds up to exec_output_bytes.
MOST = 128
_GAP = b"\n[... the daemon was restarted; output from then on is not kept ...]\n"
_STOPPING = "the daemon is stopping; try again when it is back"
_NO_TERMINAL = "its terminal ended with the daemon"
_NEVER = "the daemon ended before it started the command"
Ended = Callable[[DetachedExec], None]


@dataclass(slots=True)
class _Entry:
    record: Record
    log: ExecLog
    stream: TrackedStream | None = None
    killed: str = ""  # why, once it is
    resumed: bool = False

    @property
    def shown(self) -> DetachedExec:
        return self.record.shown

    @property
    def runs(self) -> bool:
        return self.record.shown.state == "Running"


class Detached:
    """The use-cases.

    `most` bounds the host's records; `per_sandbox` of the rules those of a sandbox, `share` a caller's.

    Above a limit, the oldest record of an ended command is removed: of the same sandbox, else of the same caller, else
    of the sandbox with the most records. With `evict` False nothing is removed but by `forget`: the owner of the
    commands does it, and one that the last daemon had prepared is started. `on_end` is called, on a thread of its own,
    when a command has ended.
    """

    def __init__(
        self,
        *,
        objects: Objects,
        sandbox_streams: SandboxStreams,
        clock: Clock,
        records: ExecRecords,
        registry: Registry,
        most: int = MOST,
        evict: bool = True,
        on_end: Ended = lambda _: None,
    ) -> None:
        self._objects, self._sandbox_streams, self._clock = objects, sandbox_streams, clock
        self._records, self._registry, self._most = records, registry, most
        self._evict, self._on_end = evict, on_end
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}  # in the order of their start
        self._closing = False

    def start(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        command: Sequence[str],
        *,
        env: Environment | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
        id_: str = "",
    ) -> "Future[DetachedExec]":
        """Start a command like `SandboxStreams.exec`, on a thread of its own; the result is done once it has started.

        With an `id_` it is started once: a command of that id that was ever started is the result.
        Raises ServiceError; the result may raise StreamError or ServiceError.
        """
        obj = self._objects.get(kind, namespace, name)
        if (earlier := self._started_before(id_)) is not None:
            return earlier
        starting: list[_Entry] = []
        opener = self._sandbox_streams.exec(
            kind,
            namespace,
            name,
            command,
            env=env,
            working_dir=working_dir,
            timeout_seconds=timeout_seconds,
            prepared=lambda ref: self._save_reference(starting[0], ref),
        )
        now = self._clock.now()
        limit = self._sandbox_streams.time_limit(obj, timeout_seconds, tty=False)
        detached_exec = DetachedExec(id_ or secrets.token_hex(6), shown_command(command), now)
        asking = access.caller()
        deadline, by = now + limit if limit else 0.0, asking.name if asking else ""
        record = Record(detached_exec, kind.name, namespace=namespace, name=name, uid=obj.uid, deadline=deadline, by=by)
        with self._lock:
            if self._closing:
                raise errors.ServiceUnavailable(_STOPPING)
            if self._evict:
                self._free_slot(obj.uid, name, by)
            entry = self._entries[detached_exec.id] = _Entry(record, self._records.begin(record))
            starting.append(entry)
        start: Future[DetachedExec] = Future()
        threading.Thread(target=self._run, args=(entry, kind, opener, start), name="detached", daemon=True).start()
        return start

    def _started_before(self, id_: str) -> "Future[DetachedExec] | None":
        """Return the command of that id if it was started; the record of one that never was is removed."""
        with self._lock:
            entry = self._entries.get(id_)
            if entry is not None and entry.shown.state == "NotStarted":
                del self._entries[id_]
                self._records.forget(id_)
                entry = None
        if entry is None:
            return None
        earlier: Future[DetachedExec] = Future()
        earlier.set_result(entry.shown)
        return earlier

    def _save_reference(self, entry: _Entry, ref: ExecRef) -> None:
        """Save the reference before the command starts: without it none ever did. Raises ServiceUnavailable."""
        record = replace(entry.record, ref=ref)
        self._records.save_reference(record)
        entry.record = record

    def state(self, id_: str) -> DetachedExec | None:
        """Return a command's state by its id alone; None if it is unknown."""
        with self._lock:
            entry = self._entries.get(id_)
        return entry.shown if entry is not None else None

    def output(self, id_: str) -> bytes:
        """Return a command's output by its id alone; b"" if it is unknown."""
        with self._lock:
            entry = self._entries.get(id_)
        return b"" if entry is None else entry.log.content() + (_GAP if entry.resumed else b"")

    def end(self, id_: str) -> None:
        """Kill a command by its id alone, if it runs."""
        with self._lock:
            entry = self._entries.get(id_)
        if entry is not None:
            self._kill(entry)

    def forget(self, is_needed: Callable[[str], bool]) -> None:
        """Remove the records of the ended commands that are not needed, by their ids."""
        with self._lock:
            unneeded_ids = [id_ for id_, entry in self._entries.items() if not entry.runs and not is_needed(id_)]
            for id_ in unneeded_ids:
                del self._entries[id_]
        for id_ in unneeded_ids:
            self._records.forget(id_)

    def resume(self) -> Callable[[], None]:
        """Load the records of the previous daemon, and adopt its running commands. Return `close`."""
        for record in self._records.load():
            kind = self._kind_of(record)
            if kind is None:
                self._records.forget(record.shown.id)
                continue
            entry = _Entry(record, self._records.log(record.shown.id), resumed=record.shown.state == "Running")
            entry.record = replace(record, shown=replace(record.shown, omitted_bytes=entry.log.omitted_bytes))
            self._entries[record.shown.id] = entry
            if entry.runs:
                self._follow(entry, kind)
                if record.attached == "terminal":
                    self._kill(entry, _NO_TERMINAL)
        return self.close

    def _follow(self, entry: _Entry, kind: Kind) -> None:
        record = entry.record
        if record.ref is None:
            self._note_end(entry, replace(entry.shown, state="NotStarted", message=_NEVER))
            return
        remaining = max(0.0, record.deadline - self._clock.now()) if record.deadline else None
        entry.stream = self._sandbox_streams.follow(
            kind, record.namespace, record.name, record.ref, remaining, starts=not self._evict
        )
        threading.Thread(target=self._follow_to_end, args=(entry, entry.stream), name="detached", daemon=True).start()

    def _kind_of(self, record: Record) -> Kind | None:
        """Return the kind of its object; None if the object is gone."""
        kind = self._registry.by_word(record.kind)
        try:
            is_same = kind and self._objects.get(kind, record.namespace, record.name).uid == record.uid
        except errors.NotFound:
            return None
        return kind if is_same else None

    def close(self) -> None:
        """Release the running commands: they go on without this daemon. The records stay."""
        with self._lock:
            self._closing = True
            running = [entry for entry in self._entries.values() if entry.runs]
        for stream in [entry.stream for entry in running]:
            if stream is not None:
                stream.detach_stream()

    def list(self, kind: Kind, namespace: str, name: str) -> Sequence[DetachedExec]:
        """Return a sandbox's detached commands, oldest first."""
        uid = self._objects.get(kind, namespace, name).uid
        with self._lock:
            return [entry.shown for entry in self._entries.values() if entry.record.uid == uid]

    def get(self, kind: Kind, namespace: str, name: str, id_: str) -> DetachedExec:
        """Return one of them. Raises NotFound."""
        return self._entry(kind, namespace, name, id_).shown

    def log(self, kind: Kind, namespace: str, name: str, id_: str) -> bytes:
        """Return its output so far, both streams in order; head and tail of a long one. Raises NotFound."""
        entry = self._entry(kind, namespace, name, id_)
        return entry.log.content() + (_GAP if entry.resumed else b"")

    def kill(self, kind: Kind, namespace: str, name: str, id_: str) -> DetachedExec:
        """Kill all its processes, if it runs. Its record and its log stay. Raises NotFound."""
        entry = self._entry(kind, namespace, name, id_)
        self._kill(entry)
        return entry.shown

    def _kill(self, entry: _Entry, reason: str = "killed on request") -> None:
        if entry.runs:
            entry.killed = reason
            stream = entry.stream  # which may end meanwhile
            if stream is not None:
                stream.close()

    def _entry(self, kind: Kind, namespace: str, name: str, id_: str) -> _Entry:
        uid = self._objects.get(kind, namespace, name).uid
        with self._lock:
            entry = self._entries.get(id_)
        if entry is None or entry.record.uid != uid:
            raise errors.NotFound(
                f"sandbox `{name}` has no detached command `{id_}`: ended ones are removed when there are "
                f"too many; `paddock execs {name}` lists the others"
            )
        return entry

    def _free_slot(self, uid: str, name: str, by: str) -> None:
        """Remove an ended command if a limit is reached. Raises TooManyRequests if none has ended."""
        of_sandbox = [entry for entry in self._entries.values() if entry.record.uid == uid]
        of_caller = [entry for entry in self._entries.values() if by and entry.record.by == by]
        rules = self._sandbox_streams.rules
        if len(of_caller) >= max(1, int(self._most * rules.share)):
            of_caller.sort(key=lambda entry: entry.record.uid != uid)  # stable: the oldest of this sandbox comes first
            self._forget_one_of(of_caller, f"{by} (caller_share is {rules.share:g})")
            of_sandbox = [entry for entry in of_sandbox if entry.shown.id in self._entries]
        if len(of_sandbox) >= rules.per_sandbox:
            self._forget_one_of(of_sandbox, f"sandbox `{name}`")
        elif len(self._entries) >= self._most:
            counts: dict[str, int] = {}
            over = [entry for entry in self._entries.values() if not entry.runs]
            for entry in self._entries.values():
                counts[entry.record.uid] = counts.get(entry.record.uid, 0) + 1
            over.sort(key=lambda entry: -counts[entry.record.uid])  # stable: the oldest of a sandbox come first
            self._forget_one_of(over, "this host")

    def _forget_one_of(self, entries: Sequence[_Entry], where: str) -> None:
        oldest = next((entry for entry in entries if not entry.runs), None)
        if oldest is None:
            raise errors.TooManyRequests(
                f"{where} runs as many detached commands as it may at a time; wait until one ends, or kill one "
                "(`paddock execs NAME --kill ID`)"
            )
        del self._entries[oldest.shown.id]
        self._records.forget(oldest.shown.id)

    def _run(
        self, entry: _Entry, kind: Kind, opener: Callable[[], TrackedStream], start: "Future[DetachedExec]"
    ) -> None:
        """Start the command, and follow it to its end."""
        try:
            stream = opener()
        except Exception as error:  # every failure must reach the waiting caller
            if not self._evict and entry.record.ref is not None:  # it may have begun: its owner must know
                entry.resumed = True
                start.set_result(entry.shown)
                self._follow(entry, kind)
                return
            with self._lock:
                self._entries.pop(entry.shown.id, None)
            self._records.forget(entry.shown.id)
            start.set_exception(error)
            return
        entry.stream = stream
        start.set_result(entry.shown)
        if entry.killed:
            stream.close()
        if self._closing:
            stream.detach_stream()
        self._follow_to_end(entry, stream)

    def _follow_to_end(self, entry: _Entry, stream: TrackedStream) -> None:
        """Read its output, and record its end; that of one which `close` released is left to the next daemon.

        One whose stream breaks (the engine restarts) may run on: it is adopted, so that its time limit holds.
        """
        end = replace(entry.shown, state="Lost", message="its stream ended before the command")
        adopted = False
        try:
            end = self._read(entry, stream)
        except NeverStarted as error:
            end = replace(end, state="NotStarted", message=str(error))
        except StreamError as error:
            end = replace(end, message=str(error))
            adopted = self._adopt_broken(entry, stream, error)
        finally:
            entry.log.close()
            if not adopted:
                entry.stream = None  # frees the stream's references
                was_released = self._closing and end.state == "Lost"
                if not was_released:
                    self._note_end(entry, end)

    def _adopt_broken(self, entry: _Entry, stream: TrackedStream, error: StreamError) -> bool:
        """Adopt a command whose own stream broke; False if it has ended, is to end, or was adopted before."""
        kind = self._kind_of(entry.record)
        is_over = isinstance(error, ExitLost) or entry.killed or self._closing
        if is_over or entry.resumed or entry.record.ref is None or kind is None:
            return False
        stream.detach_stream()
        entry.resumed = True
        self._follow(entry, kind)
        return True

    def _note_end(self, entry: _Entry, end: DetachedExec) -> None:
        if entry.killed and end.state == "Lost":
            end = replace(end, state="Killed", message=entry.killed)
        end = replace(end, message=end.message or entry.log.trouble)
        end = replace(end, finished_at=self._clock.now(), omitted_bytes=entry.log.omitted_bytes)
        record = replace(entry.record, shown=end)
        self._records.save(record)  # before it is shown: a client's answer must hold after a restart, too
        entry.record = record
        self._on_end(end)

    def _read(self, entry: _Entry, chunks: Iterator[Chunk]) -> DetachedExec:
        end = replace(entry.shown, state="Lost", message="its stream ended before the command")
        state: ExecState = "Exited"
        for chunk in chunks:
            if chunk.stream == "timeout":
                state = "TimedOut"
            elif chunk.stream == "exit":
                end = replace(entry.shown, state=state, exit_code=int(chunk.data))
            else:
                entry.log.add(chunk.data)
        return end
