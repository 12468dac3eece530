"""Event as a kind: something that happened to an object. Equal events are counted, not repeated."""

from datetime import datetime
from typing import Any, Literal

from controller.kinds.base import Model, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind, Origin
from controller.kinds.sandbox import age


class InvolvedObject(Model):
    """The object of an event; it may be gone."""

    kind: Text
    """Kind of the object."""
    namespace: Text = ""
    """Namespace of the object; left out for host-scoped kinds."""
    name: Text
    """Name of the object."""
    uid: Text
    """UID of the object; it tells objects of the same name apart."""


class EventFields(Model):
    """Something that happened to an object: a change that Paddock made, or why one failed."""

    type: Literal["Normal", "Warning"]
    """Normal, or Warning if something failed."""
    reason: Text
    """One word for programs, such as Started."""
    message: Text
    """Description for people."""
    count: Whole
    """Number of times it happened."""
    first_timestamp: Text
    """Time of the first occurrence, RFC 3339 in UTC."""
    last_timestamp: Text
    """Time of the last occurrence, RFC 3339 in UTC."""
    involved_object: InvolvedObject


def _last_seen(obj: StoredObject, now: float) -> str:
    count = obj.spec["count"]
    ago = age(now - datetime.fromisoformat(obj.spec["lastTimestamp"]).timestamp())
    return f"{ago} (x{count})" if count > 1 else ago


def _about(obj: StoredObject, _now: float) -> str:
    about = obj.spec["involvedObject"]
    return f"{about['kind'].lower()}/{about['name']}"


def _field(name: str) -> Any:
    return lambda obj, _now: str(obj.spec[name])


KIND = Kind(
    name="Event",
    plural="events",
    short_names=("ev",),
    spec=EventFields,
    origin=Origin.RECORDED,
    read_only="Paddock records events; annotate the object to add a note of your own",
    selectable=(
        "type",
        "reason",
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
    ),
    columns=(
        Column("LAST SEEN", _last_seen),
        Column("TYPE", _field("type")),
        Column("REASON", _field("reason")),
        Column("OBJECT", _about),
        Column("MESSAGE", _field("message")),
        Column("FIRST SEEN", lambda obj, now: age(now - obj.created_at), wide=True),
        Column("NAME", lambda obj, _now: obj.name, wide=True),
    ),
)
