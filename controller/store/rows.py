"""Rows of the tables to and from the data classes of kinds/.

JSON text is canonical (sorted keys, no spaces, ASCII): equal values are equal text, and 1, 1.0 and true are not
equal, as they would be in Python. Fields this version does not know pass through untouched.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from controller.kinds.meta import Event, ObjectRef, StoredObject
from controller.kinds.planning.instance_json import state_from_json, state_to_json
from controller.kinds.planning.instance_record import WARM, Instance
from controller.kinds.runtime.container import Limits
from controller.ports import StoreError

Row = Mapping[str, Any]

_OBJECT_PLAIN = ("uid", "kind", "namespace", "name", "generation", "resource_version", "created_at", "deleted_at")
_OBJECT_JSON = ("labels", "annotations", "finalizers", "owner_references", "spec", "last_applied", "status")
OBJECT_COLUMNS = (*_OBJECT_PLAIN, *_OBJECT_JSON)
INT_END = 1 << 63
# Changes whose objects are kept, and the size of the largest of them: of some ten times as much as Python objects.
_DECODED_CHANGES, _LARGE_CHANGE_BYTES = 64, 32 << 10
_LIMITS = ("cpu_millicores", "memory_bytes", "pids", "cpu_shares", "disk_bytes", "gpus")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain).encode


def to_text(value: object) -> str:
    """Return canonical JSON text. Raises StoreError for values that JSON can't hold."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot be stored: not plain JSON ({error})") from error


def from_text(text: str) -> Any:
    """Parse stored JSON text. Raises StoreError if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreError(f"the store holds a damaged value ({error}); restore a backup") from error


def clean(text: str) -> str:
    """Return text without NULs and lone surrogates, which databases refuse and engine messages may have."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _fitting(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row if every column can hold it; drivers differ in their errors, some raise only at the commit."""
    for name, value in row.items():
        if isinstance(value, str) and clean(value) != value:
            raise StoreError(f"cannot be stored: {name} {value!r} is no plain Unicode text")
        if isinstance(value, int) and not -INT_END <= value < INT_END:
            raise StoreError(f"cannot be stored: {name} {value} does not fit 64 bits")
    return row


def object_row(obj: StoredObject) -> dict[str, Any]:
    """Return the row of an object. Raises StoreError for values that no column or JSON can hold."""
    row = _fitting({name: getattr(obj, name) for name in _OBJECT_PLAIN})
    for name in _OBJECT_JSON:
        row[name] = to_text(getattr(obj, name))
    if obj.last_applied is None:
        row["last_applied"] = None
    return row


def object_from_row(row: Row) -> StoredObject:
    values = {name: row[name] for name in _OBJECT_PLAIN}
    return _object(values | from_text(_json_fields(row)))


def objects_from_rows(object_rows: Sequence[Row], specs: dict[str, Any] | None = None) -> Iterator[StoredObject]:
    """Return the objects of rows, parsed at once: so they share the names of their fields.

    With `specs` (parsed ones by their text) they are lean: they share equal ones, and lack what was last applied.
    """
    if not object_rows:
        return
    fields = [column for column in _OBJECT_JSON if specs is None or column not in ("last_applied", "spec")]
    parsed = from_text(f"[{','.join(_json_fields(row, fields) for row in object_rows)}]")
    for row, values in zip(object_rows, parsed, strict=True):
        stored_fields: dict[str, Any] = {name: row[name] for name in _OBJECT_PLAIN} | values
        if specs is not None:
            text = row["spec"]
            if text not in specs:
                specs[text] = from_text(text)
            stored_fields |= {"last_applied": None, "spec": specs[text]}
        yield _object(stored_fields)


def same_object(first: Row, second: Row) -> bool:
    """Return True if two object rows are equal except for the resource version."""
    return all(first[name] == second[name] for name in OBJECT_COLUMNS if name != "resource_version")


def packed_change(row: Row) -> bytes:
    """Return the object as one JSON text, joined from its columns' JSON and compressed: to about a quarter."""
    plain = ",".join(f'"{name}":{_encode(row[name])}' for name in _OBJECT_PLAIN)
    return zlib.compress(f"{{{plain},{_json_fields(row)[1:]}".encode(), 1)


def _json_fields(row: Row, names: Iterable[str] = _OBJECT_JSON) -> str:
    """Return columns of JSON as one JSON text: it is parsed at once."""
    parts = (f'"{name}":{"null" if (text := row[name]) is None else text}' for name in names)
    return f"{{{','.join(parts)}}}"


def object_from_change(data: bytes) -> StoredObject:
    """Return the object of a change. Those of an upgraded store are plain JSON: a migration leaves them as they are."""
    small = _small_object(data) if len(data) <= _LARGE_CHANGE_BYTES else None
    return small or _object(from_text(_change_text(data)))


@lru_cache(_DECODED_CHANGES)
def _small_object(data: bytes) -> StoredObject | None:
    """Return the object of a change; None if it is too large to be kept.

    The newest are kept: the reconcile loop and the watches read the same ones, one after the other.
    """
    text = _change_text(data)
    return _object(from_text(text)) if len(text) <= _LARGE_CHANGE_BYTES else None


def _change_text(data: bytes) -> str:
    try:
        return (data if data.startswith(b"{") else zlib.decompress(data)).decode()
    except zlib.error as error:
        raise StoreError(f"the store holds a damaged value ({error}); restore a backup") from error


def _object(values: Mapping[str, Any]) -> StoredObject:
    return StoredObject(
        kind=values["kind"],
        namespace=values["namespace"],
        name=values["name"],
        uid=values["uid"],
        spec=values["spec"],
        generation=values["generation"],
        resource_version=values["resource_version"],
        created_at=values["created_at"],
        deleted_at=values["deleted_at"],
        labels=values["labels"],
        annotations=values["annotations"],
        finalizers=tuple(values["finalizers"]),
        owner_references=tuple(values["owner_references"]),
        last_applied=values["last_applied"],
        status=values["status"],
    )


def instance_row(instance: Instance) -> dict[str, Any]:
    """Return the row of an instance. Raises StoreError for values that no column can hold."""
    reserves = {name: getattr(instance.reserves, name) for name in _LIMITS}
    row = {
        "name": instance.name,
        "parent_uid": instance.parent_uid,
        "parent_kind": instance.parent_kind,
        "namespace": instance.namespace,
        "parent_name": instance.parent_name,
        "role": instance.role,
        "created_at": instance.created_at,
        "memory": to_text(state_to_json(instance.state)),
        "version": instance.version,
        "uid": instance.uid,
        "pool_uid": instance.state.claim.pool or None,
        "user_id": instance.state.security.user_id or None,
        "host": instance.host,
        "ready_key": (instance.state.claim.ready_key or None) if instance.role == WARM else None,
    }
    return _fitting(reserves | row)


def instance_from_row(row: Row) -> Instance:
    return _instance(row, from_text(row["memory"]))


def instances_from_rows(instance_rows: Sequence[Mapping[Any, Any]]) -> list[Instance]:
    """Return the instances of rows, parsed at once."""
    parsed = from_text(f"[{','.join(row['memory'] for row in instance_rows)}]")
    return [_instance(row, memory) for row, memory in zip(instance_rows, parsed, strict=True)]


def _instance(row: Mapping[Any, Any], memory: dict[str, Any]) -> Instance:
    return Instance(
        name=row["name"],
        parent_uid=row["parent_uid"],
        parent_kind=row["parent_kind"],
        namespace=row["namespace"],
        parent_name=row["parent_name"],
        role=row["role"],
        reserves=Limits(**{name: row[name] for name in _LIMITS}),
        created_at=row["created_at"],
        state=state_from_json(memory),
        version=row["version"],
        member_uid="" if row["uid"] == row["parent_uid"] else row["uid"],
        host=row["host"],
    )


def event_row(event: Event) -> dict[str, Any]:
    reason, message = clean(event.reason), clean(event.message)
    digest_text = to_text([event.type, reason, message])
    return {
        "uid": clean(event.ref.uid),
        "digest": hashlib.sha256(digest_text.encode()).hexdigest(),
        "kind": clean(event.ref.kind),
        "namespace": clean(event.ref.namespace),
        "name": clean(event.ref.name),
        "type": event.type,
        "reason": reason,
        "message": message,
        "count": event.count,
        "first_at": event.first_at or event.at,
        "last_at": event.at,
    }


def event_from_row(row: Row) -> Event:
    return Event(
        ref=ObjectRef(row["kind"], row["namespace"], row["name"], row["uid"]),
        type=row["type"],
        reason=row["reason"],
        message=row["message"],
        at=row["last_at"],
        count=row["count"],
        first_at=row["first_at"],
    )
