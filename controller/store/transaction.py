"""One write transaction: reads are cached, writes stay pending and are sent in batches at the end.

This is sound because no other writer runs meanwhile. Each object written gets its own revision at its first write, so
that a watch can resume after any single change. A transaction without changes leaves the revision alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, case, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from controller.kinds.access.audit import AuditEntry
from controller.kinds.meta import Event, ObjectRef, StoredObject
from controller.kinds.planning.instance_record import SANDBOX, Instance
from controller.kinds.planning.plan import Deletion, StatusWrite
from controller.kinds.quota import RESOURCES, Amount, Ceiling, amount_of, pool_scope
from controller.ports import Conflict
from controller.store import rows
from controller.store.audit import append
from controller.store.rows import Row
from controller.store.schema import changes, events, instances, meta, objects

_Key = tuple[str, str, str]
_IN_ONE_QUERY = 500
_NO_OWNERS = rows.to_text(())

# Statements are made once: making one, and the key that SQLAlchemy knows it by, takes as long as running it.
NAMED = select(objects).where(*(objects.c[each] == bindparam(each) for each in ("kind", "namespace", "name")))
_OF_KIND = select(objects).where(objects.c.kind == bindparam("kind"))
_OF_KIND_IN = _OF_KIND.where(objects.c.namespace == bindparam("namespace"))
# By kinds, for the index on names begins with them: the price is that of the namespace, not of the store.
_IN_ORDER = (objects.c.namespace, objects.c.name)
_LATER = tuple_(*_IN_ORDER) > tuple_(bindparam("after_namespace"), bindparam("after_name"))
_COUNT_IN = select(func.count()).where(
    objects.c.kind.in_(bindparam("kinds", expanding=True)), objects.c.namespace == bindparam("namespace")
)
_OF_UIDS = select(objects).where(objects.c.uid.in_(bindparam("uids", expanding=True)))
ALL_INSTANCES = select(instances).order_by(instances.c.name)
INSTANCE_NAMED = select(instances).where(instances.c.name == bindparam("name"))
COUNT_INSTANCES = select(func.count()).select_from(instances)
_INSTANCES_OF = select(instances).where(instances.c.uid.in_(bindparam("uids", expanding=True)))
_VERSIONS_OF = select(instances.c.uid, instances.c.version).where(
    instances.c.uid.in_(bindparam("uids", expanding=True))
)
_INSERT_OBJECT = insert(objects)
# What names an object never changes, and setting it would have its indexes written again.
_NAMING = ("uid", "kind", "namespace", "name")
_UPDATE_OBJECT = (
    update(objects)
    .where(objects.c.uid == bindparam("of_uid"))
    .values({name: bindparam(name) for name in rows.OBJECT_COLUMNS if name not in _NAMING})
)
_DELETE_OBJECT = delete(objects).where(objects.c.uid == bindparam("of_uid"))
_INSERT_CHANGE = insert(changes)
_INSERT_INSTANCE = insert(instances)
_UPDATE_INSTANCE = (
    update(instances)
    .where(instances.c.uid == bindparam("of_uid"))
    .values({column.name: bindparam(column.name) for column in instances.c if column.name != "uid"})
)
_SEATS = case((instances.c.role == SANDBOX, 1), else_=0)
_HELD = [
    func.sum(_SEATS if each.unit == "sandboxes" else instances.c[each.unit]).label(f"held_{each.unit}")
    for each in RESOURCES
]
_HELD_BY_NAMESPACE = select(instances.c.namespace, *_HELD).group_by(instances.c.namespace)
_HELD_BY_POOL = select(*_HELD).where(instances.c.pool_uid == bindparam("pool"))
_DELETE_INSTANCE = delete(instances).where(instances.c.uid == bindparam("of_uid"))
_TAKE_COUNTER = select(meta.c.revision).with_for_update()
_MOVE_COUNTER = update(meta).values(revision=bindparam("to_revision"))
_INSERT_OF: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class SqlTransaction:
    """`ports.Transaction` on a connection that has begun writing. `flush` sends what is kept back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # On PostgreSQL this waits for the other writers; on SQLite, BEGIN IMMEDIATE has done so.
        self._newest = connection.execute(_TAKE_COUNTER).scalar_one()
        self._revisions: dict[str, int] = {}
        self._view: dict[_Key, Row | None] = {}
        self._keys: dict[str, _Key] = {}
        self._listed: set[tuple[str, str | None]] = set()
        self._in_database: set[str] = set()
        self._changed: dict[str, tuple[str, Row]] = {}
        self._events: list[dict[str, Any]] = []
        self._instances: list[Instance] = []
        self._audit: list[AuditEntry] = []

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None:
        row = self._row((kind, namespace, name))
        return None if row is None else rows.object_from_row(row)

    def list(self, kind: str, namespace: str | None = None) -> Sequence[StoredObject]:
        if not self._is_listed(kind, namespace):
            self._remember(listed(self._connection, kind, namespace))
            self._listed.add((kind, namespace))
        found = [
            row
            for (its_kind, its_namespace, _), row in self._view.items()
            if row is not None and its_kind == kind and namespace in (None, its_namespace)
        ]
        found.sort(key=lambda row: (row["namespace"], row["name"]))
        return [rows.object_from_row(row) for row in found]

    def count(self, kinds: Sequence[str], namespace: str) -> int:
        """Return the number of stored objects of these kinds in a namespace, without pending writes."""
        return int(self._connection.execute(_COUNT_IN, {"kinds": list(kinds), "namespace": namespace}).scalar_one())

    def owned(self) -> Sequence[StoredObject]:
        """Return every object with owner references, of any kind."""
        query = select(objects).where(objects.c.owner_references != _NO_OWNERS)
        self._remember(self._connection.execute(query).mappings())
        found = [row for row in self._view.values() if row is not None and row["owner_references"] != _NO_OWNERS]
        found.sort(key=_key)
        return [rows.object_from_row(row) for row in found]

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
        found = self._connection.execute(ALL_INSTANCES).mappings()
        return [rows.instance_from_row(dict(row)) for row in found]

    def held(self) -> Mapping[str, Amount]:
        """Return the reservations of all instances by namespace, and of the host (""), with pending writes."""
        held = {row[0]: Amount(*map(int, row[1:])) for row in self._connection.execute(_HELD_BY_NAMESPACE)}
        for each, sign in self._moves():
            mine = amount_of(each.reserves, int(each.role == SANDBOX))
            now = held.get(each.namespace, Amount())
            held[each.namespace] = now + mine if sign > 0 else now - mine
        return {**held, "": sum(held.values(), Amount())}

    def held_by_pool(self, uid: str) -> Amount:
        """Return the reservations of a pool's members and claimed sandboxes, with pending writes."""
        found = self._connection.execute(_HELD_BY_POOL, {"pool": uid}).one()
        held = replace(Amount(*(int(each or 0) for each in found)), sandboxes=0)
        for each, sign in self._moves():
            if each.memory.pool == uid:
                held = held + amount_of(each.reserves) if sign > 0 else held - amount_of(each.reserves)
        return held

    def _moves(self) -> Iterator[tuple[Instance, int]]:
        """Yield what pending writes take away (-1) and add (1)."""
        moved = self._moved_instances()
        if moved:
            yield from ((each, -1) for each in stored_instances(self._connection, moved).values())
            yield from ((each, 1) for each in moved.values())

    def instances_of(self, uids: Iterable[str]) -> Mapping[str, Instance]:
        """Return the instances with these uids, by uid, with pending writes."""
        asked = list(uids)
        moved = self._moved_instances()
        return {**stored_instances(self._connection, asked), **{uid: moved[uid] for uid in asked if uid in moved}}

    def _moved_instances(self) -> Mapping[str, Instance]:
        return {each.uid: each for each in self._instances}

    def put_instance(self, instance: Instance) -> None:
        """Write an instance at the end of the transaction, by compare-and-set on `version`. Raises Conflict then."""
        self._instances.append(instance)

    def add_event(self, event: Event) -> None:
        self._events.append(rows.event_row(event))

    def audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log, with the commit."""
        self._audit.append(entry)

    def load(self, uids: Iterable[str]) -> None:
        """Read these objects now, in few queries. Missing ones are skipped."""
        for some in _batches(uid for uid in dict.fromkeys(uids) if uid not in self._keys):
            self._remember(self._connection.execute(_OF_UIDS, {"uids": some}).mappings())

    def is_stored(self, uid: str) -> bool:
        """Return True if a loaded object exists, with pending writes."""
        return self._by_uid(uid) is not None

    def put_status(self, write: StatusWrite) -> None:
        """Replace the status of a loaded object; dropped if the object is gone."""
        row = self._by_uid(write.ref.uid)
        text = rows.to_text(write.status)
        if row is not None and row["status"] != text:
            self._write({**row, "status": text})

    def finalize(self, ref: ObjectRef, finalizer: str) -> None:
        """Remove a finalizer; the last one of a terminating object deletes it. `load` it first."""
        row = self._by_uid(ref.uid)
        if row is None:
            return
        obj = rows.object_from_row(row)
        left = tuple(each for each in obj.finalizers if each != finalizer)
        if left != obj.finalizers:
            row = {**row, "finalizers": rows.to_text(left)}
            self._write(row)
        if obj.deleted_at is not None and not left:
            self._delete(row)

    def request_deletion(self, asked: Deletion) -> None:
        """Request an object's deletion, unless its generation moved on or it is terminating. `load` it first."""
        row = self._by_uid(asked.ref.uid)
        if row is None or row["generation"] != asked.generation or row["deleted_at"] is not None:
            return
        if rows.object_from_row(row).finalizers:
            self._write({**row, "deleted_at": asked.at})
        else:
            self._delete(row)

    def flush(self) -> None:
        """Send all pending writes. Call once, at the end."""
        gone = [row for type_, row in self._changed.values() if type_ == "DELETED"]
        there = [row for type_, row in self._changed.values() if type_ != "DELETED"]
        # Deletions first: their names may be taken again.
        self._many(_DELETE_OBJECT, [{"of_uid": row["uid"]} for row in gone])
        self._many(_INSERT_OBJECT, [row for row in there if row["uid"] not in self._in_database])
        self._many(_UPDATE_OBJECT, [_update_of(row) for row in there if row["uid"] in self._in_database])
        self._log_changes()
        if self._events:
            self._many(_counting_insert(self._connection.dialect.name), self._events)
        self.write_instances(self._instances)
        append(self._connection, self._audit)

    def write_instances(self, wanted: Sequence[Instance]) -> Sequence[Instance]:
        """Write by compare-and-set on `version` (0: new), after `flush`. Return the stored ones. Raises Conflict."""
        stored = self._check_versions(wanted)
        written = [replace(each, version=each.version + 1) for each in wanted]
        as_rows = [rows.instance_row(each) for each in written]
        self._many(_INSERT_INSTANCE, [row for row in as_rows if row["uid"] not in stored])
        self._many(_UPDATE_INSTANCE, [{**row, "of_uid": row["uid"]} for row in as_rows if row["uid"] in stored])
        return written

    def check_ceilings(self, ceilings: Sequence[Ceiling]) -> None:
        """Check reservations against ceilings, after `write_instances`. Raises Conflict if they are exceeded."""
        if not ceilings:
            return
        held = self.held()
        for each in ceilings:
            pool = each.namespace.removeprefix(pool_scope(""))
            found = held.get(pool, Amount()) if pool == each.namespace else self.held_by_pool(pool)
            if not found.within(each.amount):
                where = f"namespace {each.namespace}" if each.namespace else "the host"
                raise Conflict(f"{where}: more is reserved than was known; read the instances again")

    def delete_instances(self, gone: Sequence[Instance]) -> None:
        """Delete instances by compare-and-set on `version`, after `flush`. Raises Conflict if one moved on."""
        stored = self._check_versions([each for each in gone if each.version])
        self._many(_DELETE_INSTANCE, [{"of_uid": uid} for uid in stored])

    def _check_versions(self, wanted: Sequence[Instance]) -> Mapping[str, int]:
        """Return the stored versions by uid. Raises Conflict unless all are as expected."""
        stored: dict[str, int] = {}
        for some in _batches(each.uid for each in wanted):
            found = self._connection.execute(_VERSIONS_OF, {"uids": some})
            stored.update((uid, version) for uid, version in found)
        for each in wanted:
            if stored.get(each.uid, 0) != each.version:
                raise Conflict(f"instance {each.name}: changed meanwhile; read it again")
        return stored

    def _row(self, key: _Key) -> Row | None:
        if key not in self._view and not self._is_listed(key[0], key[1]):
            self._remember(self._connection.execute(NAMED, named(*key)).mappings())
            self._view.setdefault(key, None)
        return self._view.get(key)

    def _by_uid(self, uid: str) -> Row | None:
        key = self._keys.get(uid)
        row = None if key is None else self._view[key]
        return row if row is not None and row["uid"] == uid else None

    def _is_listed(self, kind: str, namespace: str | None) -> bool:
        return (kind, None) in self._listed or (kind, namespace) in self._listed

    def _remember(self, found: Iterable[Mapping[Any, Any]]) -> None:
        """Add database rows to the view, never over pending writes."""
        for row in found:
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
        return self._revisions.setdefault(uid, self._newest + len(self._revisions) + 1)

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
        if not self._changed:
            return
        log = [
            {
                "revision": row["resource_version"],
                "position": 0,
                "kind": row["kind"],
                "uid": row["uid"],
                "type": type_,
                "object": rows.change_text(row),
            }
            for type_, row in self._changed.values()
        ]
        self._many(_INSERT_CHANGE, log)
        self._connection.execute(_MOVE_COUNTER, {"to_revision": max(each["revision"] for each in log)})

    def _many(self, statement: Any, parameters: Sequence[Mapping[str, Any]]) -> None:
        if parameters:
            self._connection.execute(statement, parameters)


def stored_instances(connection: Connection, uids: Iterable[str]) -> dict[str, Instance]:
    """Return the stored instances with these uids, by uid."""
    found: dict[str, Instance] = {}
    for some in _batches(uids):
        read = connection.execute(_INSTANCES_OF, {"uids": some}).mappings()
        made = (rows.instance_from_row(dict(row)) for row in read)
        found.update((each.uid, each) for each in made)
    return found


def named(kind: str, namespace: str, name: str) -> dict[str, str]:
    """Return the parameters of NAMED."""
    return {"kind": rows.clean(kind), "namespace": rows.clean(namespace), "name": rows.clean(name)}


def listed(
    connection: Connection,
    kind: str,
    namespace: str | None,
    *,
    after: tuple[str, str] | None = None,
    limit: int | None = None,
) -> Iterable[Mapping[Any, Any]]:
    """Return the rows of a kind's objects, of one namespace or all, in order of namespace and name.

    `after` is the namespace and name of the last row of the page before, `limit` the most rows.
    """
    asked: dict[str, Any] = {"kind": rows.clean(kind)}
    query = _OF_KIND
    if namespace is not None:
        query, asked["namespace"] = _OF_KIND_IN, rows.clean(namespace)
    if after is not None:
        query = query.where(_LATER)
        asked |= {"after_namespace": rows.clean(after[0]), "after_name": rows.clean(after[1])}
    if limit is not None:
        query = query.limit(bindparam("most", type_=BigInteger))
        asked["most"] = limit
    return connection.execute(query.order_by(*_IN_ORDER), asked).mappings()


def _key(row: Row) -> _Key:
    return row["kind"], row["namespace"], row["name"]


def _update_of(row: Row) -> Mapping[str, Any]:
    return {"of_uid": row["uid"]} | {name: row[name] for name in rows.OBJECT_COLUMNS if name not in _NAMING}


def _batches(values: Iterable[str]) -> Iterator[Sequence[str]]:
    """Split values into batches within the databases' parameter limit.

    Compiled statements are cached by text (SQLite: 20 KiB each, per connection). So the last value is repeated up to a
    power of two, which keeps the number of texts small.
    """
    rest = iter(values)
    while some := list(islice(rest, _IN_ONE_QUERY)):
        yield some + some[-1:] * ((1 << (len(some) - 1).bit_length()) - len(some))


@cache
def _counting_insert(dialect: str) -> Any:
    """Return the statement that inserts an event or increments the count of an equal one."""
    statement = _INSERT_OF[dialect](events)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["uid", "digest"],
        set_={
            "count": events.c.count + new.count,
            "first_at": case((new.first_at < events.c.first_at, new.first_at), else_=events.c.first_at),
            "last_at": case((new.last_at > events.c.last_at, new.last_at), else_=events.c.last_at),
        },
    )
