"""Ports to the store: objects, transactions, audit log, tokens, leader lease."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from controller.kinds.access.access import Token
from controller.kinds.access.audit import AuditEntry, ChainReport
from controller.kinds.common.store_stats import StoreFigures
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.quota import Amount


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
    def count(self, kinds: Sequence[str], namespace: str) -> int:
        """Return how many objects of these kinds the namespace holds, without the writes of this transaction."""
        ...

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


class Tokens(Protocol):
    """The bearer tokens. Every method may raise StoreError."""

    def add(self, token: Token, entry: AuditEntry) -> None:
        """Keep a new one, with its entry in the audit log. Conflict when one that is not revoked has its name."""
        ...

    def by_id(self, id_: str) -> Token | None: ...
    def all(self) -> Sequence[Token]:
        """Every token, revoked ones too, in the order in which they were made."""
        ...

    def revoke(self, name: str, at: float, entry: AuditEntry) -> Token | None:
        """Revoke the one of that name, and add its entry to the audit log; gives it revoked.

        None when no token of that name is left to revoke.
        """
        ...


class Audit(Protocol):
    """The audit log: entries in the order of their commits, each chained to the one before by its hash."""

    def append(self, entries: Sequence[AuditEntry]) -> None: ...
    def entries(self, *, since: float = 0.0, limit: int = 1000) -> Sequence[AuditEntry]:
        """The `limit` newest at or after `since` (Unix seconds), newest last."""
        ...

    def verify(self) -> ChainReport:
        """Compute every hash anew."""
        ...

    def prune(self, *, before: float, keep: int) -> int:
        """Drop entries before a time and, beyond `keep`, the oldest of the caller with the most entries.

        The rest can still be verified. Return how many are gone.
        """
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
