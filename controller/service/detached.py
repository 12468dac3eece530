"""Commands that outlive whoever asked for them: the daemon reads their output, keeps some of it, and how they ended.

They are this daemon's: one that stops ends them, and the records go with it. They count as use of their box, have its
places and time as every command, and end with it.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal

from controller.kinds.registry import Kind
from controller.ports import Chunk, Clock, StreamError
from controller.service import errors
from controller.service.collected import Capped
from controller.service.objects import Objects
from controller.service.streams import IntoBox

ExecState = Literal["Running", "Exited", "TimedOut", "Killed", "Lost"]
# Records on the whole host, of all boxes: each holds up to exec_output_bytes.
MOST = 128


@dataclass(frozen=True, slots=True)
class DetachedExec:
    """A command as it is now. Times are Unix seconds; `Lost`: nobody can tell how it ended, `message` says why."""

    id: str
    command: Sequence[str]
    started_at: float
    state: ExecState = "Running"
    finished_at: float = 0.0
    exit_code: int | None = None
    message: str = ""
    omitted_bytes: int = 0


@dataclass(slots=True)
class _Entry:
    uid: str
    shown: DetachedExec
    log: Capped
    close: Callable[[], None] = lambda: None
    killed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Detached:
    """The use-cases. `most` bounds the records of the host, the rules' `per_sandbox` those of a box.

    Where there is no room, the oldest that has ended is forgotten: first of the box itself, else of the box with most.
    """

    def __init__(self, *, objects: Objects, into_box: IntoBox, clock: Clock, most: int = MOST) -> None:
        self._objects, self._into_box, self._clock, self._most = objects, into_box, clock, most
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}  # in the order of their beginning

    def start(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        timeout_seconds: float | None = None,
    ) -> "Future[DetachedExec]":
        """Start a command as `IntoBox.exec` does, on a thread of its own; done once it has begun.

        Raises what speaks against it; the result may raise StreamError or ServiceError.
        """
        uid = self._objects.get(kind, namespace, name).uid
        opener = self._into_box.exec(
            kind, namespace, name, command, env=env, working_dir=working_dir, timeout_seconds=timeout_seconds
        )
        shown = DetachedExec(secrets.token_hex(6), tuple(command), self._clock.now())
        entry = _Entry(uid, shown, Capped(self._into_box.rules.output_bytes))
        with self._lock:
            self._make_room(uid, name)
            self._entries[shown.id] = entry
        begun: Future[DetachedExec] = Future()
        threading.Thread(target=self._run, args=(entry, opener, begun), name="detached", daemon=True).start()
        return begun

    def list(self, kind: Kind, namespace: str, name: str) -> Sequence[DetachedExec]:
        """Those of a sandbox, oldest first."""
        uid = self._objects.get(kind, namespace, name).uid
        with self._lock:
            return [each.shown for each in self._entries.values() if each.uid == uid]

    def get(self, kind: Kind, namespace: str, name: str, id_: str) -> DetachedExec:
        """One of them. NotFound."""
        return self._entry(kind, namespace, name, id_).shown

    def log(self, kind: Kind, namespace: str, name: str, id_: str) -> bytes:
        """What it has written so far, both streams as they came; of much the head and the tail. NotFound."""
        entry = self._entry(kind, namespace, name, id_)
        with entry.lock:
            return entry.log.whole()

    def kill(self, kind: Kind, namespace: str, name: str, id_: str) -> DetachedExec:
        """Kill all its processes; one that has ended is let be. Its record and its log stay. NotFound."""
        entry = self._entry(kind, namespace, name, id_)
        if entry.shown.state == "Running":
            entry.killed = True
            entry.close()
        return entry.shown

    def _entry(self, kind: Kind, namespace: str, name: str, id_: str) -> _Entry:
        uid = self._objects.get(kind, namespace, name).uid
        with self._lock:
            entry = self._entries.get(id_)
        if entry is None or entry.uid != uid:
            raise errors.NotFound(
                f"sandbox `{name}` has no detached command `{id_}`: a daemon forgets them when it restarts, or when "
                f"there are too many; `paddock execs {name}` shows those that are known"
            )
        return entry

    def _make_room(self, uid: str, name: str) -> None:
        """Forget what has ended, where there is no room for one more. Raises TooManyRequests."""
        own = [each for each in self._entries.values() if each.uid == uid]
        if len(own) >= self._into_box.rules.per_sandbox:
            self._forget_one_of(own, f"sandbox `{name}`")
        elif len(self._entries) >= self._most:
            counts: dict[str, int] = {}
            ended = [each for each in self._entries.values() if each.shown.state != "Running"]
            for each in self._entries.values():
                counts[each.uid] = counts.get(each.uid, 0) + 1
            ended.sort(key=lambda each: -counts[each.uid])  # stable: the oldest of a box come first
            self._forget_one_of(ended, "this host")

    def _forget_one_of(self, entries: Sequence[_Entry], where: str) -> None:
        found = next((each for each in entries if each.shown.state != "Running"), None)
        if found is None:
            raise errors.TooManyRequests(
                f"{where} runs as many detached commands as it may at a time; wait until one ends, or kill one "
                "(`paddock execs NAME --kill ID`)"
            )
        del self._entries[found.shown.id]

    def _run(self, entry: _Entry, opener: Callable[[], Iterator[Chunk]], begun: "Future[DetachedExec]") -> None:
        """Read all of it, and write down how it ended."""
        try:
            chunks = opener()
        except Exception as error:  # whatever it is, whoever waits must hear of it
            with self._lock:
                self._entries.pop(entry.shown.id, None)
            begun.set_exception(error)
            return
        entry.close = getattr(chunks, "close", entry.close)
        begun.set_result(entry.shown)
        if entry.killed:
            entry.close()
        ended = replace(entry.shown, state="Lost", message="its stream ended before it did")
        try:
            ended = self._read(entry, chunks)
        except StreamError as error:
            ended = replace(ended, message=str(error))
        finally:
            if entry.killed and ended.state == "Lost":
                ended = replace(ended, state="Killed", message="it was killed on request")
            entry.shown = replace(ended, finished_at=self._clock.now(), omitted_bytes=entry.log.omitted_bytes)

    def _read(self, entry: _Entry, chunks: Iterator[Chunk]) -> DetachedExec:
        ended = replace(entry.shown, state="Lost", message="its stream ended before it did")
        state: ExecState = "Exited"
        for chunk in chunks:
            if chunk.stream == "timeout":
                state = "TimedOut"
            elif chunk.stream == "exit":
                ended = replace(entry.shown, state=state, exit_code=int(chunk.data))
            else:
                with entry.lock:
                    entry.log.add(chunk.data)
        return ended
