"""One write transaction: what is read is remembered, what is written is kept back and sent in batches at the end.

That is sound because no other writer runs meanwhile. All writes of a transaction share one revision, which is
allotted at the first of them: a transaction that changes nothing moves nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from controller.kinds.instance import Instance
from controller.kinds.meta import Event, ObjectRef, StoredObject
from controller.kinds.plan import Deletion, StatusWrite
from controller.ports import Conflict
from controller.store import rows
from controller.store.rows import Row
from controller.store.schema import changes, events, instances, meta, objects

_Key = tuple[str, str, str]
_IN_ONE_QUERY = 500

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
    .where(instances.c.name == bindparam("of_name"))
    .values({column.name: bindparam(column.name) for column in instances.c if column.name != "name"})
)
_TAKE_COUNTER = select(meta.c.revision).with_for_update()
_MOVE_COUNTER = update(meta).values(revision=bindparam("to_revision"))
_INSERT_OF: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class SqlTransaction:
    """`ports.Transaction` on a connection that has begun writing. `flush` sends what is kept back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # On PostgreSQL this waits for the other writers; on SQLite, BEGIN IMMEDIATE has done so.
        self._revision = connection.execute(_TAKE_COUNTER).scalar_one() + 1
        self._view: dict[_Key, Row | None] = {}
        self._keys: dict[str, _Key] = {}
        self._listed: set[tuple[str, str | None]] = set()
        self._in_database: set[str] = set()
        self._changed: dict[str, tuple[str, Row]] = {}
        self._events: list[dict[str, Any]] = []

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None:
        row = self._row((kind, namespace, name))
        return None if row is None else rows.object_from_row(row)

    def list(self, kind: str, namespace: str | None = None) -> Sequence[StoredObject]:
        if not self._is_listed(kind, namespace):
            query = select(objects).where(objects.c.kind == rows.clean(kind))
            if namespace is not None:
                query = query.where(objects.c.namespace == rows.clean(namespace))
            self._remember(self._connection.execute(query).mappings())
            self._listed.add((kind, namespace))
        found = [
            row
            for (its_kind, its_namespace, _), row in self._view.items()
            if row is not None and its_kind == kind and namespace in (None, its_namespace)
        ]
        found.sort(key=lambda row: (row["namespace"], row["name"]))
        return [rows.object_from_row(row) for row in found]

    def put(self, obj: StoredObject) -> StoredObject:
        """Insert or replace by uid; gives the object with its new resource_version.

        An object equal to the stored one is not written. Raises Conflict if the name is another object's.
        """
        row = rows.object_row(obj)
        stored = self._row(_key(row))
        if stored is not None and stored["uid"] != obj.uid:
            raise Conflict(f"{obj.ref} exists already, with another uid: read again")
        self._check_name(obj.uid, _key(row))
        if stored is not None and rows.same_object(stored, row):
            return replace(obj, resource_version=stored["resource_version"])
        self._write(row)
        return replace(obj, resource_version=self._revision)

    def remove(self, obj: StoredObject) -> None:
        """Delete the row and its instances; nothing happens when it is gone, or the name is another object's."""
        row = self._row((obj.kind, obj.namespace, obj.name))
        if row is not None and row["uid"] == obj.uid:
            self._delete(row)

    def instances(self) -> Sequence[Instance]:
        found = self._connection.execute(select(instances).order_by(instances.c.name)).mappings()
        return [rows.instance_from_row(dict(row)) for row in found]

    def add_event(self, event: Event) -> None:
        self._events.append(rows.event_row(event))

    def load(self, uids: Iterable[str]) -> None:
        """Read these objects now, in few queries. Those that are gone are simply not there."""
        for some in _batches(uid for uid in dict.fromkeys(uids) if uid not in self._keys):
            self._remember(self._connection.execute(select(objects).where(objects.c.uid.in_(some))).mappings())

    def is_stored(self, uid: str) -> bool:
        """Whether an object that `load` was asked for is there, as this transaction leaves it."""
        return self._by_uid(uid) is not None

    def put_status(self, write: StatusWrite) -> None:
        """Replace the status of an object that `load` was asked for; dropped when that object is gone."""
        row = self._by_uid(write.ref.uid)
        text = rows.to_text(write.status)
        if row is not None and row["status"] != text:
            self._write({**row, "status": text})

    def finalize(self, ref: ObjectRef, finalizer: str) -> None:
        """Take a finalizer off; an object that is to be deleted goes with the last one. `load` it first."""
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
        """Ask for the deletion of an object, unless its spec has moved on, or it is asked for. `load` it first."""
        row = self._by_uid(asked.ref.uid)
        if row is None or row["generation"] != asked.generation or row["deleted_at"] is not None:
            return
        if rows.object_from_row(row).finalizers:
            self._write({**row, "deleted_at": asked.at})
        else:
            self._delete(row)

    def flush(self) -> None:
        """Send all that was kept back. Call once, at the end."""
        gone = [row for type_, row in self._changed.values() if type_ == "DELETED"]
        there = [row for type_, row in self._changed.values() if type_ != "DELETED"]
        # Deletions first: their names may be taken again.
        self._many(_DELETE_OBJECT, [{"of_uid": row["uid"]} for row in gone])
        self._many(_INSERT_OBJECT, [row for row in there if row["uid"] not in self._in_database])
        self._many(_UPDATE_OBJECT, [_update_of(row) for row in there if row["uid"] in self._in_database])
        self._log_changes()
        if self._events:
            self._many(_counting_insert(self._connection.dialect.name), self._events)

    def write_instances(self, wanted: Sequence[Instance]) -> Sequence[Instance]:
        """Compare-and-set on `version` (0: must be new). Call after `flush`. Gives them as stored; Conflict."""
        stored = self._versions([each.name for each in wanted])
        for each in wanted:
            if stored.get(each.name, 0) != each.version:
                raise Conflict(f"instance {each.name} moved on meanwhile: read again")
        written = [replace(each, version=each.version + 1) for each in wanted]
        as_rows = [rows.instance_row(each) for each in written]
        self._many(_INSERT_INSTANCE, [row for row in as_rows if row["name"] not in stored])
        self._many(_UPDATE_INSTANCE, [{**row, "of_name": row["name"]} for row in as_rows if row["name"] in stored])
        return written

    def _versions(self, names: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for some in _batches(names):
            query = select(instances.c.name, instances.c.version).where(instances.c.name.in_(some))
            found.update((name, version) for name, version in self._connection.execute(query))
        return found

    def _row(self, key: _Key) -> Row | None:
        if key not in self._view and not self._is_listed(key[0], key[1]):
            kind, namespace, name = map(rows.clean, key)
            query = select(objects).where(
                objects.c.kind == kind, objects.c.namespace == namespace, objects.c.name == name
            )
            self._remember(self._connection.execute(query).mappings())
            self._view.setdefault(key, None)
        return self._view.get(key)

    def _by_uid(self, uid: str) -> Row | None:
        key = self._keys.get(uid)
        row = None if key is None else self._view[key]
        return row if row is not None and row["uid"] == uid else None

    def _is_listed(self, kind: str, namespace: str | None) -> bool:
        return (kind, None) in self._listed or (kind, namespace) in self._listed

    def _remember(self, found: Iterable[Mapping[Any, Any]]) -> None:
        """Take rows from the database into the view, but never over what this transaction has written."""
        for row in found:
            uid, key = row["uid"], _key(row)
            self._check_name(uid, key)
            self._in_database.add(uid)
            self._keys[uid] = key
            self._view.setdefault(key, dict(row))

    def _check_name(self, uid: str, key: _Key) -> None:
        if self._keys.get(uid, key) != key:
            raise Conflict(f"{'/'.join(key)}: its uid belongs to an object of another name; a name never changes")

    def _write(self, row: Mapping[str, Any]) -> None:
        row = {**row, "resource_version": self._revision}
        uid, key = row["uid"], _key(row)
        self._view[key], self._keys[uid] = row, key
        self._changed[uid] = ("MODIFIED" if uid in self._in_database else "ADDED", row)

    def _delete(self, row: Row) -> None:
        uid = row["uid"]
        self._view[_key(row)] = None
        if uid in self._in_database:
            self._changed[uid] = ("DELETED", {**row, "resource_version": self._revision})
        else:
            self._changed.pop(uid, None)

    def _log_changes(self) -> None:
        if not self._changed:
            return
        log = [
            {
                "revision": self._revision,
                "position": position,
                "kind": row["kind"],
                "uid": row["uid"],
                "type": type_,
                "object": rows.change_text(row),
            }
            for position, (type_, row) in enumerate(self._changed.values())
        ]
        self._many(_INSERT_CHANGE, log)
        self._connection.execute(_MOVE_COUNTER, {"to_revision": self._revision})

    def _many(self, statement: Any, parameters: Sequence[Mapping[str, Any]]) -> None:
        if parameters:
            self._connection.execute(statement, parameters)


def _key(row: Row) -> _Key:
    return row["kind"], row["namespace"], row["name"]


def _update_of(row: Row) -> Mapping[str, Any]:
    return {"of_uid": row["uid"]} | {name: row[name] for name in rows.OBJECT_COLUMNS if name not in _NAMING}


def _batches(values: Iterable[str]) -> Iterator[Sequence[str]]:
    """Databases bound the number of parameters of one query."""
    rest = iter(values)
    while some := list(islice(rest, _IN_ONE_QUERY)):
        yield some


def _counting_insert(dialect: str) -> Any:
    """Insert an event, or count up the equal one that is there."""
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
