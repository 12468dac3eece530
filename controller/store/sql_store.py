"""`ports.Store` over SQLAlchemy. Any thread may call it; constructing one does no work."""

import copy
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, Select, bindparam, delete, func, inspect, select, update
from sqlalchemy.exc import SQLAlchemyError

from controller.kinds.common.store_stats import Connections, StoreStats
from controller.kinds.host import NAME
from controller.kinds.meta import Event, StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.quota import Amount
from controller.ports import (
    Change,
    ChangesGone,
    Heard,
    Lease,
    LeaseState,
    Meter,
    NullMeter,
    ObjectPage,
    StoreError,
    Wake,
)
from controller.store import migrate, packed, rows, totals
from controller.store.audit import ChainEnd, SqlAudit
from controller.store.connect import connect
from controller.store.database import DEFAULT_LEASE, Database, Quick, StoreLease, batches
from controller.store.errors import explain, reason_of
from controller.store.figures import figures
from controller.store.lease import LEASE_SECONDS, row_leases
from controller.store.schema import changes, events, leases, meta
from controller.store.tokens import SqlTokens
from controller.store.transaction import (
    ALL_INSTANCES,
    COUNT_INSTANCES,
    COUNT_INSTANCES_ON,
    INSTANCE_NAMED,
    INSTANCES_OF,
    INSTANCES_ON,
    NAMED,
    SqlTransaction,
    list_rows,
    name_parameters,
)

_Foreign = tuple[type[Exception], ...]
# Inside a caller's transaction an OSError is the caller's; here it can only be the database's.
_RUNNING: _Foreign = (SQLAlchemyError,)
_OPENING: _Foreign = (*_RUNNING, OSError)
_MOST_ROWS = 1_000_000
_TAKE_META = select(meta).with_for_update()
_QUICKLY_TAKE_META = Quick(_TAKE_META)
_REVISION = Quick(select(meta.c.revision))


def _unheard(_words: str) -> None:
    """Leave what others tell."""


def _whole_revisions() -> Select[Any]:
    """Return the ends of the watch log with each change after `since`, about `most`, never part of a revision."""
    later = changes.c.revision > bindparam("since")
    some = select(changes.c.revision).where(later).order_by(changes.c.revision).limit(bindparam("most")).subquery()
    last = select(func.max(some.c.revision)).scalar_subquery()
    ends = select(meta.c.revision.label("newest"), meta.c.pruned_revision.label("pruned")).subquery()
    within = later & (changes.c.revision <= last)
    both = ends.outerjoin(changes, within)
    query = select(ends, changes.c.revision, changes.c.type, changes.c.object).select_from(both)
    return query.order_by(changes.c.revision, changes.c.position)


_CHANGES = Quick(_whole_revisions())


@dataclass
class _Opened:
    """The open database of a store, and of those that write as other leases. None: not open.

    `writer` is the id by which followers know the commits of these; "" before it follows others itself.
    """

    database: Database | None = None
    instance_id: str = ""
    writer: str = ""


class SqlStore:
    """`url` is `sqlite:////path/to/file` or `postgresql://...`; `schema` is PostgreSQL's, made when missing.

    `writer` names the audit log's chain that this process appends to: a daemon's place. No two processes share one.
    A writer waits at most `wait_seconds` for others. `timer` counts seconds for the durations that `meter` gets.
    Every method may raise StoreError: then nothing was written (when a server is lost in the middle of a commit
    it may have been: read again).
    """

    def __init__(
        self,
        url: str,
        *,
        meter: Meter | None = None,
        schema: str | None = None,
        writer: str = NAME,
        wait_seconds: float = 5.0,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._url = url
        self._meter = meter or NullMeter()
        self._schema = schema
        self._wait_seconds = wait_seconds
        self._timer = timer
        self._opened = _Opened()
        self._lease: StoreLease | None = None
        self._chain = ChainEnd(writer)

    def lease(self, name: str = DEFAULT_LEASE, *, seconds: float = LEASE_SECONDS, holder: str = "") -> StoreLease:
        """Return the lease of that name, `host/<host>` or `fleet`; from now on only its holder can write.

        `holder` is that of another lease of this process: then others see that one process has both.

        The default host's is the leader lease that older versions know. It can be acquired before `open`: a database
        in use is not migrated under its daemon.
        """
        database = connect(self._url, schema=self._schema, wait_seconds=self._wait_seconds)
        self._lease = database.lease(self.open, name, seconds)
        self._lease.holder = holder or self._lease.holder
        return self._lease

    def writing_as(self, lease: Lease) -> "SqlStore":
        """Return a store over the same connections; only the holder of that lease, made by `lease`, can write by it.

        Both are opened and closed by either.
        """
        if not isinstance(lease, StoreLease):
            raise TypeError(f"{lease!r} is not a lease of a store")
        store = copy.copy(self)
        store._lease = lease  # noqa: SLF001 - its own class
        store._chain = ChainEnd(self._chain.writer)  # noqa: SLF001 - no store writes entries by another's lease
        return store

    def leases(self) -> Sequence[LeaseState]:
        """Return the states of the leases that are known. A file's is one, `daemon`, while a process holds it."""
        database = self._database()
        with self._operation("leases", database, _OPENING):
            return database.leases()

    def follow(self, wake: Wake, heard: Heard = _unheard) -> Callable[[], None]:
        """Call `wake` after commits of other followers that move the revision, on a thread. Return the undo.

        It must not block. Also called at each connect, for commits that were missed meanwhile. Without effect on
        SQLite: a file has one daemon. Ends with `close`. Our commits wake the others from now on: a daemon alone on
        its server tells nobody. `heard` gets the words of those commits first.
        """
        database = self._database()
        self._opened.writer = self._opened.writer or uuid.uuid4().hex
        return database.follow(self.instance_id, self._opened.writer, wake, heard)

    def open(self) -> None:
        """Connect, and migrate under a lock. Raises StoreTooNew for a database newer than the code."""
        self.close()
        database = connect(self._url, schema=self._schema, wait_seconds=self._wait_seconds)
        try:
            with self._operation("open", database, _OPENING), database.migrating() as connection:
                migrate.upgrade(connection, database.name, other_daemons=self._other_daemons(connection))
                self._opened.instance_id = migrate.identify(connection)
        except BaseException:
            database.close()
            raise
        self._opened.database = database

    def _other_daemons(self, connection: Connection) -> Sequence[str]:
        """Return the daemons of other hosts that use the store now."""
        if connection.dialect.name != "postgresql" or not inspect(connection).has_table(leases.name):
            return ()
        own_holder = self._lease.holder if self._lease is not None else ""
        lease_states = row_leases(connection)
        return [
            f"{lease.name}: {lease.holder}"
            for lease in lease_states
            if lease.seconds_left > 0 and lease.holder != own_holder
        ]

    def close(self) -> None:
        """Close every connection. Later calls raise StoreError, until `open`."""
        opened, self._opened.database = self._opened.database, None
        if opened is not None:
            opened.close()

    def ping(self) -> str:
        """Return "" if a write would work now, else the reason why not."""
        try:
            with self._writing("ping", _OPENING) as connection:
                self._database().check()
                # A write that is not kept: a file or a server that only reads refuses it.
                connection.execute(update(meta).values(revision=meta.c.revision))
                connection.rollback()
        except StoreError as error:
            return str(error)
        return ""

    @property
    def instance_id(self) -> str:
        """Id of the store, made with it; a label of our containers."""
        self._database()
        return self._opened.instance_id

    @property
    def location(self) -> str:
        """Location of the store. A copy of it has another one."""
        return self._database().location

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        """Begin a write transaction; commits at the end of the block, rolls back on any exception."""
        with self._writing("transaction") as connection:
            transaction = self._begin(connection)
            yield transaction
            transaction.flush()

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None:
        database = self._database()
        with self._operation("get", database):
            object_rows = database.rows(NAMED, name_parameters(kind, namespace, name))
        return rows.object_from_row(object_rows[0]) if object_rows else None

    def list(
        self, kind: str, namespace: str | None = None, *, lean: bool = False
    ) -> tuple[Sequence[StoredObject], int]:
        """Return objects ordered by namespace and name, and the revision of the read.

        Lean ones lack the document of the last `apply`, and share equal specs.
        """
        page = self.page(kind, namespace, lean=lean)
        return list(page.objects), page.revision

    def page(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
        lean: bool = False,
    ) -> ObjectPage:
        """Return objects ordered by namespace and name, decoded on access.

        `after` is namespace and name of the last object of the page before, `limit` the most objects.
        """
        with self._reading("list") as connection:
            revisions: list[int] = []
            _REVISION.run_then(connection, {}, lambda revision_rows: revisions.append(revision_rows[0]["revision"]))
            object_rows = list_rows(connection, kind, namespace, after=after, limit=limit)
        versions = [(row["uid"], row["resource_version"]) for row in object_rows]
        return ObjectPage(versions, packed.DecodedRows(object_rows, lean=lean), revisions[0])

    def revision(self) -> int:
        """Return the revision of the newest change."""
        database = self._database()
        with self._operation("revision", database):
            revision: int = database.rows(_REVISION, {})[0]["revision"]
        return revision

    def changes(self, since: int, *, limit: int = 1000) -> Sequence[Change]:
        """Return the changes after revision `since`, oldest first, at most `limit`.

        A few more where the last ones share a revision, as those of one commit did in older versions.
        ChangesGone when some were pruned, or when `since` is not reached yet: the database is an older one.
        """
        database = self._database()
        with self._operation("changes", database):
            after = max(-1, min(since, rows.INT_END - 1))
            change_rows = database.rows(_CHANGES, {"since": after, "most": min(max(1, limit), _MOST_ROWS)})
            _check_kept(since, change_rows[0])
        changed_rows = (row for row in change_rows if row["revision"] is not None)
        return [Change(row["revision"], row["type"], rows.object_from_change(row["object"])) for row in changed_rows]

    def instances(self, uids: Iterable[str] | None = None, *, host: str | None = None) -> Sequence[Instance]:
        """Return the instances with these uids (None: all), on one host or on all, in order of their names if all."""
        if uids is not None:
            return [instance for instance in self._instances_of(uids) if host in (None, instance.host)]
        with self._reading("instances") as connection:
            if host is not None:
                return rows.instances_from_rows(INSTANCES_ON.rows(connection, {"host": rows.clean(host)}))
            return rows.instances_from_rows(ALL_INSTANCES.rows(connection, {}))

    def _instances_of(self, uids: Iterable[str]) -> Sequence[Instance]:
        """Return the instances with these uids. Many are read in several reads."""
        database = self._database()
        with self._operation("instances", database):
            instance_rows = [row for some in batches(uids) for row in database.rows(INSTANCES_OF, {"uids": some})]
        return list({instance.uid: instance for instance in rows.instances_from_rows(instance_rows)}.values())

    def instance(self, name: str) -> Instance | None:
        with self._reading("instances") as connection:
            row = connection.execute(INSTANCE_NAMED, {"name": rows.clean(name)}).mappings().one_or_none()
        return None if row is None else rows.instance_from_row(dict(row))

    def count_instances(self, host: str | None = None) -> int:
        with self._reading("instances") as connection:
            if host is not None:
                return int(connection.execute(COUNT_INSTANCES_ON, {"host": rows.clean(host)}).scalar_one())
            return int(connection.execute(COUNT_INSTANCES).scalar_one())

    def reservations(self, *scopes: str) -> Mapping[str, Amount]:
        """Return the reservations of scopes."""
        database = self._database()
        with self._operation("held", database):
            return totals.reserved_amounts(database.rows, scopes)

    def record(self, writes: Writes) -> Mapping[str, Instance]:
        """Store a pass's writes in one transaction. Return the instances with their new versions, by uid.

        Writes for objects that are gone meanwhile are dropped. Raises Conflict if an instance moved on, or if the
        instances would hold more than a ceiling of the writes: nothing is written, and the pass is planned again.
        Statuses that did not change move no resourceVersion.
        """
        if not writes:
            return {}
        with self._writing("record") as connection:
            transaction = self._begin(connection)
            transaction.load(_uids(writes))
            for status in writes.statuses:
                transaction.put_status(status)
            for ref, finalizer in writes.finalized:
                transaction.finalize(ref, finalizer)
            for deletion in writes.deletions:
                transaction.request_deletion(deletion)
            for event in writes.events:
                transaction.add_event(event)
            for entry in writes.audit:
                transaction.audit(entry)
            for instance in writes.instances:
                if transaction.is_stored(instance.parent_uid):
                    transaction.put_instance(instance)
            transaction.retire(writes.retired)
            transaction.keep_within(writes.ceilings)
            return {instance.uid: instance for instance in transaction.flush()}

    def events(
        self,
        *,
        namespace: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        uid: str | None = None,
        limit: int = 500,
    ) -> Sequence[Event]:
        """Return the `limit` newest matching events, newest last. Kinds match in any case."""
        query = select(events).order_by(events.c.last_at.desc(), events.c.id.desc())
        filters = {events.c.namespace: namespace, events.c.name: name, events.c.uid: uid}
        query = query.where(*(column == rows.clean(value) for column, value in filters.items() if value is not None))
        if kind is not None:
            query = query.where(func.lower(events.c.kind) == rows.clean(kind).lower())
        query = query.limit(min(max(0, limit), _MOST_ROWS))
        with self._reading("events") as connection:
            return packed.events_of(connection.execute(query))

    def prune(self, *, keep_changes: int, events_before: float, keep_events: int = _MOST_ROWS) -> int:
        """Drop old changes and events. Return the number of rows.

        At least the newest `keep_changes` changes stay (a revision is never split), and every event seen since
        `events_before` (Unix seconds), but of those no more than about the newest `keep_events`.
        """
        with self._writing("prune") as connection:
            state = connection.execute(_TAKE_META).mappings().one()
            self._fence(connection)
            through = _prunable(connection, keep_changes, newest=state["revision"])
            dropped = connection.execute(delete(changes).where(changes.c.revision <= through)).rowcount
            connection.execute(update(meta).values(pruned_revision=max(state["pruned_revision"], through)))
            newest = select(events.c.last_at).order_by(events.c.last_at.desc()).offset(max(0, keep_events)).limit(1)
            first_too_many = connection.execute(newest).scalar_one_or_none()
            dropped += connection.execute(delete(events).where(events.c.last_at < events_before)).rowcount
            if first_too_many is not None:
                dropped += connection.execute(delete(events).where(events.c.last_at <= first_too_many)).rowcount
            totals.recount(connection)
            return dropped

    def backup(self) -> BinaryIO:
        """Copy the whole store into an unlinked open file, without blocking writers. Raises StoreError."""
        database = self._database()
        with self._operation("backup", database, (OSError, sqlite3.Error, SQLAlchemyError)):
            return database.backup()

    def restore(self, file: Path, *, stamp: str) -> str:
        """Replace this closed store by a backup; the lease must be held. Return a message."""
        database = connect(self._url, schema=self._schema, wait_seconds=self._wait_seconds)
        try:
            with self._operation("restore", database, _OPENING), database.reading() as connection:
                other_daemons = self._other_daemons(connection)
            if other_daemons:
                message = f"in use by other daemons ({', '.join(other_daemons)}); stop all of them first, then restore"
                raise StoreError(f"{database.name}: {message}")
            return database.restore(file, stamp)
        finally:
            database.close()

    def figures(self) -> StoreStats:
        """Return size, schema, and number of objects by kind."""
        with self._reading("figures") as connection:
            return figures(connection)

    def connections(self) -> Connections:
        """Return the state of the connection pool, without I/O; all 0 while the store is not open."""
        opened = self._opened.database
        return opened.connections() if opened is not None else Connections(0, 0, 0, 0)

    @property
    def tokens(self) -> SqlTokens:
        """Bearer tokens."""
        return SqlTokens(self._reading, self._changing, self._chain)

    @property
    def audit(self) -> SqlAudit:
        """Audit log."""
        return SqlAudit(self._reading, self._changing, self._appending, self._chain, self._wait_seconds)

    @contextmanager
    def _changing(self, operation: str) -> Iterator[Connection]:
        """Open a fenced write transaction for rows other than objects; the revision does not move."""
        with self._writing(operation) as connection:
            _QUICKLY_TAKE_META.run(connection, {})
            self._fence(connection)
            yield connection

    @contextmanager
    def _appending(self, operation: str) -> Iterator[Connection]:
        """Open a fenced write transaction that leaves the counter row alone: it writes only to our own audit chain."""
        database = self._database()
        with self._operation(operation, database), database.writing() as connection:
            yield connection
            if self._lease is not None:
                self._lease.fence(connection, alone=True)

    def _begin(self, connection: Connection) -> SqlTransaction:
        transaction = SqlTransaction(connection, self._chain, self._opened.writer)
        self._fence(connection)
        return transaction

    def _fence(self, connection: Connection) -> None:
        """Fence the write: only the holder of our lease may commit. Call it after taking the counter row."""
        if self._lease is not None:
            self._lease.fence(connection)

    def _database(self) -> Database:
        opened = self._opened.database
        if opened is None:
            raise StoreError("store: not open; it was closed, or opening it failed")
        return opened

    @contextmanager
    def _reading(self, operation: str) -> Iterator[Connection]:
        database = self._database()
        with self._operation(operation, database), database.reading() as connection:
            yield connection

    @contextmanager
    def _writing(self, operation: str, foreign: _Foreign = _RUNNING) -> Iterator[Connection]:
        database = self._database()
        with self._operation(operation, database, foreign), database.writing() as connection:
            yield connection

    @contextmanager
    def _operation(self, operation: str, database: Database, foreign: _Foreign = _RUNNING) -> Iterator[None]:
        """Count and time a call, and translate foreign exceptions."""
        started = self._timer()
        try:
            yield
        except StoreError as error:
            self._count_failure(operation, reason_of(error))
            raise
        except (*foreign, database.driver_error) as error:
            fault = explain(error, database.name)
            self._count_failure(operation, fault.reason)
            raise fault.error from error
        finally:
            self._meter.count("paddock_store_operations_total", operation=operation)
            self._meter.observe(
                "paddock_store_operation_duration_seconds", self._timer() - started, operation=operation
            )

    def _count_failure(self, operation: str, reason: str) -> None:
        self._meter.count("paddock_store_operation_errors_total", operation=operation, reason=reason)


def _uids(writes: Writes) -> Iterator[str]:
    yield from (status.ref.uid for status in writes.statuses)
    yield from (ref.uid for ref, _ in writes.finalized)
    yield from (instance.parent_uid for instance in writes.instances)
    yield from (deletion.ref.uid for deletion in writes.deletions)


def _check_kept(since: int, ends: rows.Row) -> None:
    """Raise ChangesGone if changes after `since` were pruned, or it is not reached yet."""
    revision, pruned = ends["newest"], ends["pruned"]
    if since < pruned:
        raise ChangesGone(f"changes after revision {since} are kept from {pruned} on only: list again")
    if since > revision:
        raise ChangesGone(f"revision {since} is newer than the store's {revision}: list again")


def _prunable(connection: Connection, keep: int, *, newest: int) -> int:
    """Return the newest revision whose changes may all be pruned; 0: none."""
    if keep <= 0:
        return newest
    by_age = select(changes.c.revision).order_by(changes.c.revision.desc()).offset(keep - 1).limit(1)
    oldest_kept = connection.execute(by_age).scalar_one_or_none()
    return 0 if oldest_kept is None else oldest_kept - 1
