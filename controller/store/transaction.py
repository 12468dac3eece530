"""One write transaction: reads are cached, writes stay pending and are sent in batches at the end.

This is sound because no other writer runs meanwhile. Each object written gets its own revision at its first write, so
that a watch can resume after any single change. A transaction without changes leaves the revision alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Text,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    tuple_,
    union_all,
    update,
)

from controller.kinds.access.audit import AuditEntry
from controller.kinds.host import NAME, lease_of
from controller.kinds.meta import Event, ObjectRef, StoredObject
from controller.kinds.planning.instance_record import WARM, Instance
from controller.kinds.planning.plan import Deletion, StatusWrite
from controller.kinds.quota import Amount, Ceiling
from controller.ports import Conflict
from controller.store import rows, totals
from controller.store.audit import ChainEnd, append
from controller.store.database import Quick, batches
from controller.store.follow import CHANNEL, notice
from controller.store.rows import Row
from controller.store.schema import changes, events, instances, leases, meta, objects
from controller.store.totals import Moves
from controller.store.upsert import insert_of

_Key = tuple[str, str, str]
_Place = tuple[str, str | None]  # kind and namespace; None: of all namespaces
_POOL = "SandboxPool"
_MOST_AHEAD = 20  # objects named in one query
_NO_OWNERS = rows.to_text(())

# Statements are made once: making one, and the key that SQLAlchemy knows it by, takes as long as running it.
NAMED = Quick(select(objects).where(*(objects.c[name] == bindparam(name) for name in ("kind", "namespace", "name"))))
_OF_KIND = select(objects).where(objects.c.kind == bindparam("kind"))
_OF_KIND_IN = _OF_KIND.where(objects.c.namespace == bindparam("namespace"))
_IN_ORDER = (objects.c.namespace, objects.c.name)
_LATER = tuple_(*_IN_ORDER) > tuple_(bindparam("after_namespace"), bindparam("after_name"))
# Without the columns that say again what `memory` says.
_READ = select(*(column for column in instances.c if column.name not in ("pool_uid", "user_id", "ready_key")))
ALL_INSTANCES = Quick(_READ.order_by(instances.c.name))
INSTANCE_NAMED = select(instances).where(instances.c.name == bindparam("name"))
INSTANCES_ON = Quick(_READ.where(instances.c.host == bindparam("host")).order_by(instances.c.name))
_ANNOTATION_BYTES = select(func.coalesce(func.sum(func.length(objects.c.annotations)), 0)).where(
    objects.c.namespace == bindparam("namespace")
)
COUNT_INSTANCES = select(func.count()).select_from(instances)
COUNT_INSTANCES_ON = COUNT_INSTANCES.where(instances.c.host == bindparam("host"))
INSTANCES_OF = Quick(select(instances).where(instances.c.uid.in_(bindparam("uids", expanding=True))))
_READY_ON_ANY = (
    select(instances)
    .where(instances.c.pool_uid == bindparam("pool_uid"), instances.c.ready_key == bindparam("key"))
    .where(instances.c.role == WARM, instances.c.host != bindparam("besides"))
    .where(bindparam("on_host", type_=Text).in_((literal_column("''"), instances.c.host)))
    .order_by(instances.c.created_at, instances.c.uid)
    .limit(bindparam("most", type_=BigInteger))
    .with_for_update(skip_locked=True)
)
_READY = Quick(_READY_ON_ANY)
# On PostgreSQL a host has a lease of its own; a file's only one is here.
_LEASE = case((instances.c.host == NAME, lease_of(NAME)), else_=literal(lease_of("")) + instances.c.host)
_EXPIRED = exists().where(leases.c.name == _LEASE, leases.c.expires_at <= func.extract("epoch", func.clock_timestamp()))
_READY_AND_ALIVE = Quick(_READY_ON_ANY.where(~_EXPIRED))
# An instance's version, all that totals are made of, and the other columns of indexes.
_RESERVED_NAMES = (
    *("uid", "version", "namespace", "role", "pool_uid", "host"),
    *("cpu_millicores", "memory_bytes", "pids", "disk_bytes", "gpus"),
    *("name", "parent_uid", "user_id", "ready_key"),
)
_RESERVED_IN = itemgetter(*(name for name in _RESERVED_NAMES if name != "version"))
_RESERVED = select(*(instances.c[name] for name in _RESERVED_NAMES))
_RESERVED_OF = Quick(_RESERVED.where(instances.c.uid.in_(bindparam("uids", expanding=True))))
_RESERVED_BELOW = Quick(_RESERVED.where(instances.c.parent_uid.in_(bindparam("uids", expanding=True))))
# Objects, each with those of the instances below it: a pass writes both. A pool's are its members, which are many.
_BELOW = {name: f"instance_{name}" for name in _RESERVED_NAMES}
_OF_UIDS = Quick(
    select(objects, *(instances.c[name].label(label) for name, label in _BELOW.items()))
    .outerjoin(instances, and_(instances.c.parent_uid == objects.c.uid, objects.c.kind != _POOL))
    .where(objects.c.uid.in_(bindparam("uids", expanding=True)))
)
_OWNED = select(objects).where(text("owner_references <> '[]'"))  # literally: so its index serves
_INSERT_OBJECT = Quick(insert(objects), [column.name for column in objects.c])
# What names an object never changes, and setting it would have its indexes written again.
_NAMING = ("uid", "kind", "namespace", "name")
_UPDATE_OBJECT = Quick(
    update(objects)
    .where(objects.c.uid == bindparam("of_uid"))
    .values({name: bindparam(name) for name in rows.OBJECT_COLUMNS if name not in _NAMING})
)
_DELETE_OBJECT = Quick(delete(objects).where(objects.c.uid == bindparam("of_uid")))
_INSERT_CHANGE = Quick(insert(changes), [column.name for column in changes.c])
_INSERT_INSTANCE = Quick(insert(instances), [column.name for column in instances.c])
_UPDATE_INSTANCE = Quick(
    update(instances)
    .where(instances.c.uid == bindparam("of_uid"))
    .values({column.name: bindparam(column.name) for column in instances.c if column.name != "uid"})
)
# Most writes leave all columns of indexes alone, and setting those would have the indexes written again.
_UPDATE_STATE = Quick(
    update(instances)
    .where(instances.c.uid == bindparam("of_uid"))
    .values(
        {
            column.name: bindparam(column.name)
            for column in instances.c
            if column.name == "version" or column.name not in _RESERVED_NAMES
        }
    )
)
_DELETE_INSTANCE = Quick(delete(instances).where(instances.c.uid == bindparam("of_uid")))
# Writers of PostgreSQL queue up at a lock of the table's number before they wait for the counter row: at a lock one of
# them wakes as it is let go, at a row all. Who does not queue up waits at the row as ever.
_QUEUE = select(literal_column(f"pg_advisory_xact_lock('{meta.name}'::regclass::oid::bigint)").label("at")).subquery()
_QUEUED = select(meta.c.revision, _QUEUE.c.at).select_from(meta.join(_QUEUE, literal_column("true")))
_TAKE_COUNTER = Quick(_QUEUED.with_for_update(of=meta))
_MOVE_COUNTER = Quick(update(meta).values(revision=bindparam("to_revision")))
# The same with a wake of the followers of the store, at the commit. PostgreSQL only.
_MOVE_COUNTER_AND_NOTIFY = Quick(
    update(meta)
    .values(revision=bindparam("to_revision"))
    .returning(func.pg_notify(CHANNEL, notice(meta.c.instance_id, bindparam("writer", type_=Text))))
)
_STEP_COUNTER = Quick(update(meta).values(revision=meta.c.revision + 1).returning(meta.c.revision))
_EVENT_COLUMNS = [column.name for column in events.c if column.name != "id"]
_LOT = 100  # changes packed at a time
_MOST_NOTICE_BYTES = 7_000  # a notification takes 8,000


class SqlTransaction:
    """`ports.Transaction` on a connection that has begun writing. `flush` sends what is kept back.

    `chain` is the end of the audit log's chain as its last writer here knows it. `writer` is the id by which followers
    of the store know their own commits ("": nobody follows).
    """

    def __init__(self, connection: Connection, chain: ChainEnd, writer: str = "") -> None:
        self._connection, self._chain = connection, chain
        self._counter = _Counter(connection, writer)
        self._revisions: dict[str, int] = {}
        # Objects as this transaction sees them: read, or written here (None: there is none).
        self._view: dict[_Key, Row | None] = {}
        # Keys of the objects in the view, by uid.
        self._keys: dict[str, _Key] = {}
        # Kinds and namespaces (None: all) of which the view has every object.
        self._listed: set[_Place] = set()
        # Uids of objects that have a row: they are updated or deleted, all others inserted.
        self._in_database: set[str] = set()
        # True once all objects with an owner are in the view.
        self._knows_owned = False
        # Changes of objects that `flush` is to send, by uid: the type of the change, and the new row.
        self._changed: dict[str, tuple[str, Row]] = {}
        self._events: list[dict[str, Any]] = []
        self._instances: dict[str, Instance] = {}
        # Versions and reservations of instances that were read (None: there is none), by uid. `below` are those of all
        # below a loaded object, unless it is a pool.
        self._own: dict[str, Row | None] = {}
        self._below: dict[str, dict[str, Row]] = {}
        self._retired: dict[str, Instance] = {}
        self._ceilings: Sequence[Ceiling] = ()
        self._audit: list[AuditEntry] = []

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None:
        row = self._row((kind, namespace, name))
        return None if row is None else rows.object_from_row(row)

    def list(self, kind: str, namespace: str | None = None) -> Sequence[StoredObject]:
        if not self._is_listed(kind, namespace):
            self._remember(list_rows(self._connection, kind, namespace))
            self._listed.add((kind, namespace))
        object_rows = [
            row
            for (its_kind, its_namespace, _), row in self._view.items()
            if row is not None and its_kind == kind and namespace in (None, its_namespace)
        ]
        object_rows.sort(key=lambda row: (row["namespace"], row["name"]))
        return [rows.object_from_row(row) for row in object_rows]

    def read_ahead(self, keys: Iterable[_Key], lists: Iterable[_Place] = (), *, owned: bool = False) -> None:
        """Read in one query what `get`, `list` and `owned` will be asked for. Too much is left to them."""
        unknown = [key for key in dict.fromkeys(keys) if key not in self._view and not self._is_listed(*key[:2])]
        places = [place for place in dict.fromkeys(lists) if not self._is_listed(*place)]
        owned = owned and not self._knows_owned
        if not 0 < len(unknown) + len(places) + owned <= _MOST_AHEAD:
            return
        parameters: dict[str, Any] = {}
        for at, key in enumerate(unknown):
            parameters |= {f"{name}_{at}": clean_text for name, clean_text in name_parameters(*key).items()}
        for at, (kind, namespace) in enumerate(places):
            parameters[f"of_kind_{at}"] = rows.clean(kind)
            if namespace is not None:
                parameters[f"of_namespace_{at}"] = rows.clean(namespace)
        statement = _ahead(len(unknown), tuple(namespace is None for _, namespace in places), owned)
        self._remember(statement.rows(self._connection, parameters))
        for key in unknown:
            self._view.setdefault(key, None)
        self._listed.update(places)
        self._knows_owned = self._knows_owned or owned

    def count(self, namespace: str) -> int:
        """Return the number of stored objects in a namespace, without pending writes."""
        return int(totals.stored_rows(self._connection, [namespace]).get(namespace, {}).get(totals.OBJECTS, 0))

    def annotation_bytes(self, namespace: str) -> int:
        """Return the length of the annotations of a namespace as JSON, without pending writes."""
        parameters = {"namespace": rows.clean(namespace)}
        return int(self._connection.execute(_ANNOTATION_BYTES, parameters).scalar_one())

    def owned(self) -> Sequence[StoredObject]:
        """Return every object with owner references, of any kind."""
        if not self._knows_owned:
            self._remember(self._connection.execute(_OWNED).mappings())
            self._knows_owned = True
        owned_rows = [row for row in self._view.values() if row is not None and row["owner_references"] != _NO_OWNERS]
        owned_rows.sort(key=_key)
        return [rows.object_from_row(row) for row in owned_rows]

    def put(self, obj: StoredObject) -> StoredObject:
        """Insert or replace by uid. Return the object with its new resource_version.

        An object equal to the stored one is not written. Raises Conflict if the name is another object's.
        """
        row = rows.object_row(obj)
        stored = self._row(_key(row))
        if stored is not None and stored["uid"] != obj.uid:
            raise Conflict(f"{obj.ref}: exists already, with another uid; read it again")
        self._check_name(obj.uid, _key(row))
        if stored is not None and rows.same_object(stored, row):
            return replace(obj, resource_version=stored["resource_version"])
        return replace(obj, resource_version=self._write(row))

    def remove(self, obj: StoredObject) -> None:
        """Delete the object and its instances; no effect if it is gone, or the name is another object's."""
        row = self._row((obj.kind, obj.namespace, obj.name))
        if row is not None and row["uid"] == obj.uid:
            self._delete(row)

    def instances(self) -> Sequence[Instance]:
        return rows.instances_from_rows(ALL_INSTANCES.rows(self._connection, {}))

    def reservations(self, *scopes: str) -> Mapping[str, Amount]:
        """Return the reservations of scopes, with pending writes."""
        moves = Moves()
        if self._instances:
            for row in self._reserved_of(self._instances).values():
                moves.instance(row, -1)
            for instance in self._instances.values():
                moves.instance(rows.instance_row(instance), 1)
        amounts = totals.reserved_amounts(
            lambda statement, parameters: statement.rows(self._connection, parameters), scopes
        )
        return {scope: amount + moves.amount(scope) for scope, amount in amounts.items()}

    def instances_of(self, uids: Iterable[str]) -> Mapping[str, Instance]:
        """Return the instances with these uids, by uid, with pending writes."""
        uid_list = list(uids)
        pending = {uid: self._instances[uid] for uid in uid_list if uid in self._instances}
        instance_rows = [
            row for some in batches(uid_list) for row in INSTANCES_OF.rows(self._connection, {"uids": some})
        ]
        self._own |= {row["uid"]: {name: row[name] for name in _RESERVED_NAMES} for row in instance_rows}
        return {**{instance.uid: instance for instance in rows.instances_from_rows(instance_rows)}, **pending}

    def ready_member(self, pool_uid: str, key: str, *, besides: str, on: str = "") -> Instance | None:
        """Return the oldest warm member of a pool with that `ready_key`, on a host other than `besides` and not lost.

        `on` is the only host that may have it ("": any).
        Without those that this transaction writes. It is locked until the commit: other transactions get other ones.
        """
        pending = self._instances.keys() | self._retired.keys()
        texts = {"pool_uid": pool_uid, "key": key, "besides": besides, "on_host": on}
        parameters = {name: rows.clean(raw_text) for name, raw_text in texts.items()}
        ready = _READY_AND_ALIVE if self._connection.dialect.name == "postgresql" else _READY
        candidates = ready.rows(self._connection, {**parameters, "most": 1 + len(pending)})
        return next(
            (instance for instance in rows.instances_from_rows(candidates) if instance.uid not in pending), None
        )

    def put_instance(self, instance: Instance) -> None:
        """Write an instance at the end of the transaction, by compare-and-set on `version`. Raises Conflict then."""
        self._instances[instance.uid] = instance

    def add_event(self, event: Event) -> None:
        self._events.append(rows.event_row(event))

    def audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log, with the commit."""
        self._audit.append(entry)

    def load(self, uids: Iterable[str]) -> None:
        """Read these objects now, in few queries. Missing ones are skipped."""
        for some in batches(uid for uid in dict.fromkeys(uids) if uid not in self._keys):
            object_rows = _OF_UIDS.rows(self._connection, {"uids": some})
            self._remember({name: row[name] for name in rows.OBJECT_COLUMNS} for row in object_rows)
            for row in object_rows:
                self._own.setdefault(row["uid"], None)
                if row["kind"] == _POOL:
                    continue
                below = self._below.setdefault(row["uid"], {})
                columns = {name: row[label] for name, label in _BELOW.items()}
                if columns["uid"] is not None:
                    self._own[columns["uid"]] = below[columns["uid"]] = columns

    def is_stored(self, uid: str) -> bool:
        """Return True if a loaded object exists, with pending writes."""
        return self._by_uid(uid) is not None

    def put_status(self, write: StatusWrite) -> None:
        """Replace the status of a loaded object; dropped if the object is gone, or bound anew since it was decided."""
        row = self._by_uid(write.ref.uid)
        text = rows.to_text(write.status)
        if row is not None and row["status"] != text and not _is_bound_anew(row, write):
            self._write({**row, "status": text})

    def finalize(self, ref: ObjectRef, finalizer: str) -> None:
        """Remove a finalizer; the last one of a terminating object deletes it. `load` it first."""
        row = self._by_uid(ref.uid)
        if row is None:
            return
        obj = rows.object_from_row(row)
        finalizers = tuple(name for name in obj.finalizers if name != finalizer)
        if finalizers != obj.finalizers:
            row = {**row, "finalizers": rows.to_text(finalizers)}
            self._write(row)
        if obj.deleted_at is not None and not finalizers:
            self._delete(row)

    def request_deletion(self, deletion: Deletion) -> None:
        """Request an object's deletion, unless its generation moved on or it is terminating. `load` it first."""
        row = self._by_uid(deletion.ref.uid)
        if row is None or row["generation"] != deletion.generation or row["deleted_at"] is not None:
            return
        if rows.object_from_row(row).finalizers:
            self._write({**row, "deleted_at": deletion.at})
        else:
            self._delete(row)

    def retire(self, retired: Iterable[Instance]) -> None:
        """Delete instances at the end of the transaction, by compare-and-set on `version`."""
        self._retired.update((instance.uid, instance) for instance in retired)

    def keep_within(self, ceilings: Sequence[Ceiling]) -> None:
        """Check reservations against ceilings at the end of the transaction."""
        self._ceilings = ceilings

    def tell(self, message: str) -> None:
        if len(message.encode()) <= _MOST_NOTICE_BYTES:
            self._counter.words = f" {message}"

    def flush(self) -> Sequence[Instance]:
        """Send all pending writes. Return the instances as stored. Call once, at the end.

        Raises Conflict if an instance changed meanwhile (a version of 0 is new), or if a ceiling is exceeded.
        """
        deleted_rows = [row for type_, row in self._changed.values() if type_ == "DELETED"]
        present_rows = [row for type_, row in self._changed.values() if type_ != "DELETED"]
        new = [row for row in present_rows if row["uid"] not in self._in_database]
        moves = Moves()
        # Deletions first: their names may be taken again. With an object go its instances.
        for row in self._reserved_below([row["uid"] for row in deleted_rows]):
            moves.instance(row, -1)
        _DELETE_OBJECT.many(self._connection, [{"of_uid": row["uid"]} for row in deleted_rows])
        for row in deleted_rows:
            self._own |= dict.fromkeys((row["uid"], *self._below.get(row["uid"], ())))
        _INSERT_OBJECT.many(self._connection, new)
        _UPDATE_OBJECT.many(
            self._connection, [_update_of(row) for row in present_rows if row["uid"] in self._in_database]
        )
        for row in deleted_rows:
            moves.object(row["namespace"], -1)
        for row in new:
            moves.object(row["namespace"], 1)
        self._log_changes()
        if self._events:
            _counting_insert(self._connection.dialect.name).many(self._connection, self._events)
        stored_instances = self._write_instances(moves)
        self._check_ceilings(totals.add(self._connection, moves, tell=bool(self._ceilings)))
        append(self._connection, self._audit, self._chain)
        return stored_instances

    def _write_instances(self, moves: Moves) -> Sequence[Instance]:
        """Write and delete instances by compare-and-set on `version`."""
        retired = [instance for instance in self._retired.values() if instance.version]
        pending = [instance for uid, instance in self._instances.items() if uid not in self._retired]
        stored = self._reserved_of([instance.uid for instance in (*retired, *pending)])
        for instance in (*retired, *pending):
            stored_row = stored.get(instance.uid)
            if (stored_row["version"] if stored_row else 0) != instance.version:
                raise Conflict(f"instance {instance.name}: changed meanwhile; read it again")
        # Totals lose what was reserved here, and gain what is below: a changed record counts once.
        for row in stored.values():
            moves.instance(row, -1)
        _DELETE_INSTANCE.many(self._connection, [{"of_uid": instance.uid} for instance in retired])
        next_instances = [replace(instance, version=instance.version + 1) for instance in pending]
        as_rows = [rows.instance_row(instance) for instance in next_instances]
        for row in as_rows:
            moves.instance(row, 1)
        _INSERT_INSTANCE.many(self._connection, [row for row in as_rows if row["uid"] not in stored])
        changed_rows: list[Row] = []
        state_rows: list[Row] = []
        for row in as_rows:
            # Most writes change the state alone, and nothing that totals count.
            if before := stored.get(row["uid"]):
                (state_rows if _RESERVED_IN(row) == _RESERVED_IN(before) else changed_rows).append(
                    {**row, "of_uid": row["uid"]}
                )
        _UPDATE_INSTANCE.many(self._connection, changed_rows)
        _UPDATE_STATE.many(self._connection, state_rows)
        return next_instances

    def _reserved_below(self, uids: Sequence[str]) -> Iterator[Row]:
        """Yield version and reservations of the stored instances below objects: the known ones, and the others read."""
        yield from (row for uid in uids for row in self._below.get(uid, {}).values())
        unread = [uid for uid in uids if uid not in self._below]
        yield from _reserved_rows(self._connection, _RESERVED_BELOW, unread).values()

    def _reserved_of(self, uids: Iterable[str]) -> dict[str, Row]:
        """Return version and reservations of stored instances by uid: those that are known, and the others read."""
        uid_list = list(uids)
        reserved = _reserved_rows(self._connection, _RESERVED_OF, [uid for uid in uid_list if uid not in self._own])
        return reserved | {uid: known_row for uid in uid_list if (known_row := self._own.get(uid)) is not None}

    def _check_ceilings(self, scope_rows: Mapping[str, Row]) -> None:
        """Raise Conflict if a ceiling is exceeded by what is stored now, `scope_rows` as this transaction left them."""
        self._instances = {}  # sent
        if not self._exceeded_ceilings(scope_rows):
            return
        totals.recount(self._connection)  # rows may have been removed behind our back
        for ceiling in self._exceeded_ceilings({}):
            scope = ceiling.namespace
            where = scope if "/" in scope else f"namespace {scope}" if scope else "the host"
            raise Conflict(f"{where}: more is reserved than was known; read the instances again")

    def _exceeded_ceilings(self, scope_rows: Mapping[str, Row]) -> Sequence[Ceiling]:
        reserved = {scope: totals.amount_of_row(row) for scope, row in scope_rows.items()}
        unread = {ceiling.namespace for ceiling in self._ceilings if ceiling.namespace not in reserved}
        reserved |= self.reservations(*sorted(unread)) if unread else {}
        return [ceiling for ceiling in self._ceilings if not reserved[ceiling.namespace].within(ceiling.amount)]

    def _row(self, key: _Key) -> Row | None:
        if key not in self._view and not self._is_listed(key[0], key[1]):
            self._remember(NAMED.rows(self._connection, name_parameters(*key)))
            self._view.setdefault(key, None)
        return self._view.get(key)

    def _by_uid(self, uid: str) -> Row | None:
        key = self._keys.get(uid)
        row = None if key is None else self._view[key]
        return row if row is not None and row["uid"] == uid else None

    def _is_listed(self, kind: str, namespace: str | None) -> bool:
        return (kind, None) in self._listed or (kind, namespace) in self._listed

    def _remember(self, object_rows: Iterable[Mapping[Any, Any]]) -> None:
        """Add database rows to the view, never over pending writes."""
        for row in object_rows:
            uid, key = row["uid"], _key(row)
            self._check_name(uid, key)
            self._in_database.add(uid)
            self._keys[uid] = key
            self._view.setdefault(key, dict(row))

    def _check_name(self, uid: str, key: _Key) -> None:
        if self._keys.get(uid, key) != key:
            raise Conflict(f"{'/'.join(key)}: its uid belongs to an object of another name; names never change")

    def _revision_of(self, uid: str) -> int:
        """Return the revision of an object's change in this transaction; one for all its writes."""
        if uid not in self._revisions:
            self._revisions[uid] = self._counter.next()
        return self._revisions[uid]

    def _write(self, row: Mapping[str, Any]) -> int:
        """Add a pending write. Return its revision."""
        uid, key = row["uid"], _key(row)
        revision = self._revision_of(uid)
        row = {**row, "resource_version": revision}
        self._view[key], self._keys[uid] = row, key
        self._changed[uid] = ("MODIFIED" if uid in self._in_database else "ADDED", row)
        return revision

    def _delete(self, row: Row) -> None:
        uid = row["uid"]
        self._view[_key(row)] = None
        if uid in self._in_database:
            self._changed[uid] = ("DELETED", {**row, "resource_version": self._revision_of(uid)})
        else:
            self._changed.pop(uid, None)

    def _log_changes(self) -> None:
        changed = iter(self._changed.values())
        while some := list(islice(changed, _LOT)):
            _INSERT_CHANGE.many(self._connection, [_change(type_, row) for type_, row in some])
        self._counter.end_at(max((row["resource_version"] for _, row in self._changed.values()), default=0))


class _Counter:
    """The counter row in one write transaction: each object written takes the next revision.

    On PostgreSQL taking the row waits for the other writers, and goes before anything else that is asked. On SQLite
    BEGIN IMMEDIATE has done so, and the first write reads and moves the row at once. `words` go to the followers of
    the store.
    """

    def __init__(self, connection: Connection, writer: str) -> None:
        self._connection = connection
        self._writer = writer
        self.words = ""
        self._before: int | None = None  # the newest revision when the transaction began, once it is known
        self._stored: int | None = None
        self._last: int | None = None
        if connection.dialect.name != "sqlite":
            _TAKE_COUNTER.run_then(connection, {}, self._on_revision)

    def _on_revision(self, revision_rows: Sequence[Mapping[Any, Any]]) -> None:
        self._before = self._stored = self._last = int(revision_rows[0]["revision"])

    def next(self) -> int:
        """Return the revision of one more object."""
        if self._last is None:
            self._stored = self._last = int(_STEP_COUNTER.rows(self._connection, {})[0]["revision"])
            self._before = self._last - 1
        else:
            self._last += 1
        return self._last

    def end_at(self, revision: int) -> None:
        """Store the newest revision of the transaction; 0: it changed nothing."""
        newest = revision or self._before
        if newest == self._stored:
            return
        if self._writer and self._connection.dialect.name == "postgresql":
            _MOVE_COUNTER_AND_NOTIFY.run(self._connection, {"to_revision": newest, "writer": self._writer + self.words})
        else:
            _MOVE_COUNTER.run(self._connection, {"to_revision": newest})


def _change(type_: str, row: Row) -> dict[str, Any]:
    return {
        "revision": row["resource_version"],
        "position": 0,
        "kind": row["kind"],
        "uid": row["uid"],
        "type": type_,
        "object": rows.packed_change(row),
    }


def _reserved_rows(connection: Connection, statement: Quick, uids: Iterable[str]) -> dict[str, Row]:
    """Return version and reservations of stored instances by uid."""
    reserved: dict[str, Row] = {}
    for some in batches(uids):
        reserved.update((row["uid"], dict(row)) for row in statement.rows(connection, {"uids": some}))
    return reserved


def name_parameters(kind: str, namespace: str, name: str) -> dict[str, str]:
    """Return the parameters of NAMED."""
    return {"kind": rows.clean(kind), "namespace": rows.clean(namespace), "name": rows.clean(name)}


@cache
def _ahead(keys: int, everywhere: tuple[bool, ...], owned: bool) -> Quick:
    """Return the statement that reads so many objects by name, lists of one namespace or all, and the owned objects."""
    parts: list[Any] = []
    for at in range(keys):
        names = ("kind", "namespace", "name")
        parts.append(select(objects).where(*(objects.c[name] == bindparam(f"{name}_{at}") for name in names)))
    for at, all_namespaces in enumerate(everywhere):
        of_kind = select(objects).where(objects.c.kind == bindparam(f"of_kind_{at}"))
        within = objects.c.namespace == bindparam(f"of_namespace_{at}")
        parts.append(of_kind if all_namespaces else of_kind.where(within))
    return Quick(union_all(*parts, *([_OWNED] if owned else [])))


def list_rows(
    connection: Connection,
    kind: str,
    namespace: str | None,
    *,
    after: tuple[str, str] | None = None,
    limit: int | None = None,
) -> Sequence[Mapping[Any, Any]]:
    """Return the rows of a kind's objects, of one namespace or all, in order of namespace and name.

    `after` is the namespace and name of the last row of the page before, `limit` the most rows.
    """
    parameters: dict[str, Any] = {"kind": rows.clean(kind)}
    if namespace is not None:
        parameters["namespace"] = rows.clean(namespace)
    if after is not None:
        parameters |= {"after_namespace": rows.clean(after[0]), "after_name": rows.clean(after[1])}
    if limit is not None:
        parameters["most"] = limit
    return _list_statement(namespace is not None, after is not None, limit is not None).rows(connection, parameters)


@cache
def _list_statement(in_namespace: bool, later: bool, some: bool) -> Quick:
    """Return the statement that lists a kind: of one namespace, after a place in the order, at most so many."""
    query = _OF_KIND_IN if in_namespace else _OF_KIND
    query = query.where(_LATER) if later else query
    query = query.limit(bindparam("most", type_=BigInteger)) if some else query
    return Quick(query.order_by(*_IN_ORDER))


def _key(row: Row) -> _Key:
    return row["kind"], row["namespace"], row["name"]


def _update_of(row: Row) -> Mapping[str, Any]:
    return {"of_uid": row["uid"]} | {name: row[name] for name in rows.OBJECT_COLUMNS if name not in _NAMING}


def _is_bound_anew(row: Row, write: StatusWrite) -> bool:
    """Return True if the object got a host that the writer of this status did not know of."""
    if '"binding"' not in row["status"]:
        return False
    return bool(rows.from_text(row["status"]).get("binding", 0) > write.status.get("binding", 0))


@cache
def _counting_insert(dialect: str) -> Quick:
    """Return the statement that inserts an event or increments the count of an equal one."""
    statement = insert_of(dialect)(events)
    new = statement.excluded
    counting = statement.on_conflict_do_update(
        index_elements=["uid", "digest"],
        set_={
            "count": events.c.count + new.count,
            "first_at": case((new.first_at < events.c.first_at, new.first_at), else_=events.c.first_at),
            "last_at": case((new.last_at > events.c.last_at, new.last_at), else_=events.c.last_at),
        },
    )
    return Quick(counting, _EVENT_COLUMNS)
