"""Ports to the store: objects, transactions, audit log, tokens, leader lease."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from controller.kinds.access.access import Token
from controller.kinds.access.audit import AuditEntry, AuditReport
from controller.kinds.common.store_stats import StoreStats
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.quota import Amount
from controller.ports.common import Heard, Wake


class StoreError(Exception):
    """The store can't be used now; the message says what to do. Nothing was written."""


class StoreTooNew(StoreError):
    """The database was written by a newer Paddock."""


class Conflict(StoreError):
    """A concurrent change came first: read again."""


class ChangesGone(StoreError):
    """The requested revision is older than the kept changes: list again (HTTP 410)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One commit's effect on one object. `type` is ADDED, MODIFIED or DELETED; `obj` as it was written."""

    revision: int
    type: str
    obj: StoredObject


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease as it is stored: `host/<host>` (the default host's is `daemon`), or `fleet`.

    `holder` is in words, the same in all leases of one process; each new one raises `epoch`. `seconds_left` are by the
    store's clock: negative since it expired, far below 0 once it was released.
    """

    name: str
    holder: str
    epoch: int
    seconds_left: float


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Objects in order of namespace and name, and the revision they were read at.

    `versions` are their uids and resource versions; `objects` are decoded on access, each time anew.
    """

    versions: Sequence[tuple[str, int]]
    objects: Sequence[StoredObject]
    revision: int


class Transaction(Protocol):
    """One write transaction. There is no other writer meanwhile: reads stay valid until the commit."""

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None: ...
    def list(self, kind: str, namespace: str | None = None) -> Sequence[StoredObject]: ...
    def read_ahead(
        self, keys: Iterable[tuple[str, str, str]], lists: Iterable[tuple[str, str | None]] = (), *, owned: bool = False
    ) -> None:
        """Read at once what `get` (keys), `list` (kinds and namespaces) and `owned` will be asked for."""
        ...

    def count(self, namespace: str) -> int:
        """Return how many objects the namespace holds, without the writes of this transaction."""
        ...

    def annotation_bytes(self, namespace: str) -> int:
        """Return the size of all annotations in the namespace, about, without the writes of this transaction."""
        ...

    def owned(self) -> Sequence[StoredObject]:
        """Return every object with owner references, of any kind."""
        ...

    def put(self, obj: StoredObject) -> StoredObject:
        """Insert or replace by uid; return the object with its new resource_version."""
        ...

    def remove(self, obj: StoredObject) -> None:
        """Delete the row (not a request for deletion: that is `put` with `deleted_at`)."""
        ...

    def instances(self) -> Sequence[Instance]: ...
    def reservations(self, *scopes: str) -> Mapping[str, Amount]:
        """Return the reservations of each scope: a namespace, a host (`host_scope`), or a pool (`pool_scope`).

        A pool's are those of its members and claimed sandboxes on all hosts. Their number is that of `replicas_scope`.
        """
        ...

    def instances_of(self, uids: Iterable[str]) -> Mapping[str, Instance]:
        """Return the existing ones of these uids, by uid."""
        ...

    def ready_member(self, pool_uid: str, key: str, *, besides: str, on: str = "") -> Instance | None:
        """Return the oldest warm member of a pool with that `ready_key`, on a host other than `besides`, if any.

        `on` is the only host that may have it ("": any). None of a host whose daemon's lease has expired.

        Without those that this transaction writes. Other transactions get other ones until it ends.
        """
        ...

    def put_instance(self, instance: Instance) -> None:
        """Write an instance with the commit: compare-and-set on `version` (0: must be new). Conflict if it changed."""
        ...

    def retire(self, gone: Iterable[Instance]) -> None:
        """Delete instances with the commit, by compare-and-set on `version`."""
        ...

    def add_event(self, event: Event) -> None:
        """Add an event, or count up an equal one (same object, type, reason and message)."""
        ...

    def audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log, in the same commit."""
        ...

    def tell(self, words: str) -> None:
        """Pass words on to the followers of the store with the commit: at most once, and nothing may depend on it."""
        ...


class Tokens(Protocol):
    """The bearer tokens. Every method may raise StoreError."""

    def add(self, token: Token, entry: AuditEntry) -> None:
        """Add a token, with its entry in the audit log. Conflict if a token with its name is not revoked."""
        ...

    def by_id(self, id_: str) -> Token | None: ...
    def all(self) -> Sequence[Token]:
        """Return every token, revoked ones too, in order of creation."""
        ...

    def revoke(self, name: str, at: float, entry: AuditEntry) -> Token | None:
        """Revoke the token of that name, add its entry to the audit log, and return it.

        None if no token of that name is left to revoke.
        """
        ...


class Audit(Protocol):
    """The audit log: of each writer, entries in the order of their commits, each chained to the one before it."""

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries to our own chain."""
        ...

    def entries(self, *, since: float = 0.0, limit: int = 1000, writer: str | None = None) -> Sequence[AuditEntry]:
        """Return the `limit` newest at or after `since` (Unix seconds), newest last.

        Those of one writer are in the order of its chain, those of all in the order of their times.
        """
        ...

    def verify(self) -> AuditReport:
        """Verify every hash of every chain."""
        ...

    def prune(self, *, before: float, keep: int) -> int:
        """Drop entries before a time and, beyond `keep`, the oldest of the callers with the most entries of a writer.

        The rest can still be verified. Return the number of dropped entries.
        """
        ...


class Store(Protocol):
    """Persistent state. Every method may raise StoreError; a failed call has written nothing."""

    @property
    def tokens(self) -> Tokens: ...
    @property
    def audit(self) -> Audit: ...

    def open(self) -> None:
        """Connect and migrate under a lock. StoreTooNew for a database newer than the code."""
        ...

    def close(self) -> None: ...
    def writing_as(self, lease: "Lease") -> "Store":
        """Return a store over the same connections, whose writes only the holder of that lease of it can commit.

        Either opens and closes both. It is without the wrappers of this one: give it its own.
        """
        ...

    def leases(self) -> Sequence[LeaseState]:
        """Return the states of the leases, by the store's clock; those that nobody ever held are missing."""
        ...

    def follow(self, wake: Wake, heard: Heard = ...) -> Callable[[], None]:
        """Call `wake`, which must not block, after commits of other followers that move the revision; return the undo.

        It may be called without one, and on any thread. From now on our own commits wake the others. `heard` gets what
        such commits `tell`, before the wake.
        """
        ...

    def ping(self) -> str:
        """Return "" if a write would work now, else the reason."""
        ...

    @property
    def instance_id(self) -> str:
        """Return the store's id, created with it; our containers are labelled with it."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a write transaction; commits at the end of the block, rolls back on any exception."""
        ...

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None: ...
    def list(
        self, kind: str, namespace: str | None = None, *, lean: bool = False
    ) -> tuple[Sequence[StoredObject], int]:
        """Return objects in order of namespace and name, and the revision they were read at.

        Lean ones lack the document of the last `apply`, and share equal specs.
        """
        ...

    def page(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
        lean: bool = False,
    ) -> ObjectPage:
        """Return a part of a list.

        `after` is namespace and name of the last object of the page before, `limit` the most objects (None: all). Lean
        objects lack the document of the last `apply`, and share equal specs.
        """
        ...

    def revision(self) -> int:
        """Return the number of the newest change. Every written object has its own number, in commit order."""
        ...

    def changes(self, since: int, *, limit: int = 1000) -> Sequence[Change]:
        """Return changes after revision `since`, oldest first. ChangesGone if some were pruned."""
        ...

    def instances(self, uids: Iterable[str] | None = None, *, host: str | None = None) -> Sequence[Instance]:
        """Return the instances with these uids (None: all), on one host or on all (None)."""
        ...

    def instance(self, name: str) -> Instance | None:
        """Return the instance of that name, which is its container's."""
        ...

    def count_instances(self, host: str | None = None) -> int:
        """Return the number of instances on one host, or on all (None)."""
        ...

    def reservations(self, *scopes: str) -> Mapping[str, Amount]:
        """Return the stored reservations of each scope, as `Transaction.reservations` does."""
        ...

    def record(self, writes: Writes) -> Mapping[str, Instance]:
        """Write a pass's rows in one transaction; return the instances as stored (new versions), by uid.

        Writes for objects that are gone meanwhile are dropped. Raises Conflict if an instance changed, or if the
        instances would exceed a ceiling of the writes: nothing is written, and the pass is planned again. Unchanged
        statuses do not move resourceVersion.
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
        """Return the `limit` newest matching events, newest last. The case of a kind does not matter."""
        ...

    def backup(self) -> BinaryIO:
        """Return a copy of the whole store as of now, in an open file without a name. Close it."""
        ...

    def figures(self) -> StoreStats:
        """Return size, schema, and numbers of objects by kind."""
        ...

    def prune(self, *, keep_changes: int, events_before: float, keep_events: int = 1_000_000) -> int:
        """Drop old changes and events; return the number of dropped rows."""
        ...


class Lease(Protocol):
    """Leader lease of a store: one process holds it at a time. Its methods may raise StoreError.

    `lapses` counts the renewals that came too late by the store's clock, and found that nobody else has taken it.
    """

    lapses: int

    def acquire(self) -> str:
        """Try once, without waiting. Return "" on success, else the holder, in words."""
        ...

    def renew(self) -> bool:
        """Extend it to its full time from now. False: another process holds it, and this one can't get it back."""
        ...

    def is_held(self) -> bool:
        """Return True if engine calls may begin now. No I/O. False for a while means: not renewed in time."""
        ...

    def release(self) -> None:
        """Release it; never raises."""
        ...
