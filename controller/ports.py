"""The Protocols the rooms meet at, so that any of them can be replaced, and every room can count and time.

Nothing above a port may assume how it is kept: `Engine` may one day drive many hosts, `Store` is SQLite or PostgreSQL.
The contract suites in tests/contract say what an implementation must hold to.
"""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, runtime_checkable

from controller.kinds.access.access import Tokens as Tokens  # a port as well
from controller.kinds.access.audit import Audit as Audit  # a port as well
from controller.kinds.access.audit import AuditEntry
from controller.kinds.common.chunk import Chunk as Chunk
from controller.kinds.common.store_stats import StoreFigures
from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.activity import Run
from controller.kinds.observed.observed import Container, Observation
from controller.kinds.observed.pressure import HostUse
from controller.kinds.observed.usage import Usage
from controller.kinds.planning.action import Action
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.outcome import Outcome
from controller.kinds.planning.plan import Writes
from controller.kinds.quota import Amount
from controller.kinds.runtime.files import Files as Files  # a port as well
from controller.kinds.runtime.files import FileWork as FileWork
from controller.kinds.runtime.probe import ProbeResult, Watch

Wake = Callable[[], None]


class Clock(Protocol):
    def now(self) -> float:
        """Wall clock, Unix seconds."""
        ...


class Meter(Protocol):
    """Counts and times without knowing who publishes it. Names are those of the metrics catalogue."""

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None: ...
    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...
    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...


class NullMeter:
    """Counts nothing; for commands that publish no metrics."""

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None: ...
    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...
    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...


class Engine(Protocol):
    """Sees and changes the containers of one instance id. No method raises for what the engine answered."""

    def open(self, wake: Wake) -> None:
        """Start watching in the background; `wake` is called (from any thread) after each change of the view."""
        ...

    def close(self) -> None:
        """Stop watching and free every connection. Containers are left as they are."""
        ...

    def observe(self) -> Observation:
        """The newest view. No I/O, never blocks."""
        ...

    def request_look(self, *, full: bool = False) -> None:
        """Ask for a look in the background: one list, and limits from the cgroups; `full` inspects all."""
        ...

    def look(self, *, full: bool = False) -> Observation:
        """The same, at once and in this thread. An engine that can't be reached gives a blind view."""
        ...

    def look_at(self, container_id: str) -> str:
        """Look at one container, inside too, at once and in this thread. Empty when it was seen, else why not."""
        ...

    def act(self, action: Action) -> Outcome:
        """Carry out one action, within a time limit. After Ok, `observe()` shows the effect or something later."""
        ...

    def ping(self) -> str:
        """Empty when the engine answers, else why not, in words."""
        ...


class Firewall(Protocol):
    """The host's packet filter, as far as Paddock reads it."""

    def unguarded(self) -> str:
        """Why networked sandboxes are not guarded now, in words; "" when they are. Never raises."""
        ...


class Probes(Protocol):
    """Asks boxes how they are."""

    def probe(self, watch: Watch) -> ProbeResult:
        """Run one probe, within about its timeout. Never raises: what can't be run is `unknown`."""
        ...


class HostGauge(Protocol):
    def read(self, root_dir: str) -> HostUse:
        """What the engine's machine has left, read now; what can't be read is left out. Never raises."""
        ...


class UsageReader(Protocol):
    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        """Usage by container id, read now. A container that can't be read whole is left out."""
        ...


class ChunkStream(Iterator[Chunk], Protocol):
    """An open stream. Closing it, from any thread, frees the connection; so does reading it to its end."""

    def close(self) -> None: ...


@runtime_checkable
class ExecStream(ChunkStream, Protocol):
    """The stream of a command that runs. Both methods may block and raise StreamError."""

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal a size."""

    def signal(self, name: str) -> None:
        """Send a signal, such as `INT`, to its process group."""


class Streams(Protocol):
    """Into the box. Errors are `StreamError`s, which say what to do."""

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
        """Log output; closing the iterator frees the connection. `tail` counts before `until` cuts."""

    def inspect(self, container_id: str) -> Mapping[str, Any]:
        """A container of ours in the engine's own words."""

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
        escaped: Callable[[str], None] | None = None,
    ) -> ExecStream:
        """Run a command; the last chunk is `exit`. With `tty` all its output is `stdout`.

        Past `timeout_seconds` all its processes are killed (exit 124). `escaped` is called, from any thread, if
        processes are left then that may be its own, though nothing tells.
        """
        ...


class Ports(Protocol):
    """A box's ports, from within its own network."""

    def connect(self, container: Container, port: int) -> socket.socket:
        """A TCP connection to that port of the box's 127.0.0.1. May block for some seconds. Raises StreamError."""


class InUse(Protocol):
    """Who uses which box now: the doors tell it, each turn heeds it. See loop/activity.py."""

    def begin(self, uid: str, /, *, asks: bool) -> None:
        """A stream begins; `asks` wakes a box that sleeps."""
        ...

    def end(self, uid: str, /, *, asks: bool) -> None:
        """It has ended."""
        ...

    def held(self, uid: str, /) -> Run | None:
        """The run of that object that idleness ends, or ended last: nobody may begin to use it."""
        ...

    @property
    def turns(self) -> int:
        """How many turns have ended."""
        ...

    def wait(self, turns: int, seconds: float, /) -> bool:
        """Wait until more turns than that have ended; False after `seconds`."""
        ...


class StreamError(Exception):
    """A log or exec request that cannot be served, in words for the user."""


class StoreError(Exception):
    """The store can't be used now; says what to do. Nothing was written."""


class StoreTooNew(StoreError):
    """The database was written by a newer Paddock."""


class Conflict(StoreError):
    """Somebody else changed it first: read again."""


class ChangesGone(StoreError):
    """The asked revision is older than the kept changes: list again (HTTP 410)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One commit's effect on one object. `type` is ADDED, MODIFIED or DELETED; `obj` as it was written."""

    revision: int
    type: str
    obj: StoredObject


class Transaction(Protocol):
    """One write transaction. No other writer runs meanwhile: what is read stays true until the commit."""

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None: ...
    def list(self, kind: str, namespace: str | None = None) -> Sequence[StoredObject]: ...
    def owned(self) -> Sequence[StoredObject]:
        """Every object with owner references, of whatever kind."""
        ...

    def put(self, obj: StoredObject) -> StoredObject:
        """Insert or replace by uid; gives the object with its new resource_version."""
        ...

    def remove(self, obj: StoredObject) -> None:
        """Delete the row (not a request for deletion: that is `put` with `deleted_at`)."""
        ...

    def instances(self) -> Sequence[Instance]: ...
    def held(self) -> Mapping[str, Amount]:
        """What the stored instances reserve, by namespace, and all of them on the host ("")."""
        ...

    def held_by_pool(self, uid: str) -> Amount:
        """What the members of that pool and the sandboxes that came of it reserve."""
        ...

    def instances_of(self, uids: Iterable[str]) -> Mapping[str, Instance]:
        """Those of these uids that are there, by uid."""
        ...

    def put_instance(self, instance: Instance) -> None:
        """Write an instance with the commit: compare-and-set on `version` (0: must be new). Conflict when it moved."""
        ...

    def add_event(self, event: Event) -> None:
        """Add, or count up an equal one (same object, type, reason and message)."""
        ...

    def audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log: it is there if, and only if, all else of the commit is."""
        ...


class Store(Protocol):
    """Remembers. Every method may raise StoreError; a failed call has written nothing."""

    @property
    def tokens(self) -> Tokens: ...
    @property
    def audit(self) -> Audit: ...

    def open(self) -> None:
        """Connect and migrate under a lock. StoreTooNew for a database newer than the code."""
        ...

    def close(self) -> None: ...
    def ping(self) -> str:
        """Empty when a write would work now, else why not, in words."""
        ...

    @property
    def instance_id(self) -> str:
        """Made with the store and kept for its life; our containers are labelled with it."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a write transaction; commits at the end of the block, rolls back on any exception."""
        ...

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None: ...
    def list(self, kind: str, namespace: str | None = None) -> tuple[Sequence[StoredObject], int]:
        """Objects in order of namespace and name, and the revision they were read at."""
        ...

    def revision(self) -> int:
        """Number of the newest change. Every object written by a commit has a number of its own, in their order."""
        ...

    def changes(self, since: int, *, limit: int = 1000) -> Sequence[Change]:
        """Changes after revision `since`, oldest first. ChangesGone when some were pruned."""
        ...

    def instances(self, uids: Iterable[str] | None = None) -> Sequence[Instance]: ...  # None: all
    def record(self, writes: Writes) -> Mapping[str, Instance]:
        """A turn's writes in one transaction; gives the instances as stored (new versions), by uid.

        Writes for objects that are gone meanwhile are dropped. Raises Conflict if an instance moved on, or if the
        instances would hold more than a ceiling of the writes: nothing is written, and the turn is planned again.
        Statuses that did not change move no resourceVersion.
        """
        ...

    def events(
        self,
        *,
        namespace: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        uid: str | None = None,
        limit: int = 500,
    ) -> Sequence[Event]:
        """The `limit` newest of those asked for, newest last. The case of a kind does not matter."""
        ...

    def backup(self) -> BinaryIO:
        """A copy of the whole store as of now, in an open file without a name. Close it."""
        ...

    def figures(self) -> StoreFigures:
        """Size, schema, and objects by kind."""
        ...

    def prune(self, *, keep_changes: int, events_before: float, keep_events: int = 1_000_000) -> int:
        """Drop old changes and events; how many rows went."""
        ...


class Lease(Protocol):
    """The right to act for a store: one process has it at a time. Its methods may raise StoreError."""

    def acquire(self) -> str:
        """Try once, without waiting. Empty: it is ours. Else who has it, in words."""
        ...

    def renew(self) -> bool:
        """Keep it for its full time from now. False: it is another's, and will not be ours again."""
        ...

    def held(self) -> bool:
        """Whether engine calls may begin now. No I/O. False for a while means: not renewed in time."""
        ...

    def release(self) -> None:
        """Give it up; never raises."""
        ...


class Jobs(Protocol):
    """Periodic work that only marks things due."""

    def every(self, job_id: str, seconds: float, jitter_seconds: float, mark: Wake) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
