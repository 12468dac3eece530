"""The newest events of the store, oldest first."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import overload

from controller.kinds.meta import Event, StoredObject
from controller.kinds.runtime.container import stable_hash
from controller.ports import Store
from controller.service.listing import serialize
from controller.service.listing.field_selector import FieldSelector
from controller.service.sources import derived_uid

MOST = 5000  # in one answer
# Fields that the store selects by, and their names there.
_NARROWING: Mapping[str, str] = MappingProxyType(
    {
        "metadata.namespace": "namespace",
        "involvedObject.namespace": "namespace",
        "involvedObject.kind": "kind",
        "involvedObject.name": "name",
        "involvedObject.uid": "uid",
    }
)


class EventSource:
    """ports.Store.events as objects. An event is in the namespace of its object."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, namespace: str, name: str) -> StoredObject | None:
        about = name.rpartition(".")[0]
        events = self._store.events(namespace=namespace, name=about, limit=MOST)
        return next((obj for event in events if (obj := event_object(event)).name == name), None)

    def list(self, namespace: str | None, by_fields: FieldSelector, limit: int) -> Sequence[StoredObject]:
        """Return the newest matches, at most MOST. Terms that the store can't select by are left to the caller."""
        by_store = all(equal and field in _NARROWING for field, equal, _ in by_fields.terms)
        most = min(limit or MOST, MOST) if by_store else MOST
        narrow = {_NARROWING[field]: value for field, value in by_fields.equal.items() if field in _NARROWING}
        if namespace is not None:
            narrow["namespace"] = namespace
        return _EventObjects(self._store.events(**narrow, limit=most))


class _EventObjects(Sequence[StoredObject]):
    """Events as objects, each made when it is read: an object needs several times the memory of its event."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[StoredObject]:
        return map(event_object, self._events)

    @overload
    def __getitem__(self, at: int) -> StoredObject: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[StoredObject]: ...

    def __getitem__(self, at: int | slice) -> StoredObject | Sequence[StoredObject]:
        return _EventObjects(self._events[at]) if isinstance(at, slice) else event_object(self._events[at])


def event_object(event: Event) -> StoredObject:
    """Return an event as an object. Its name is stable while its count grows; its version is the count."""
    content = (event.ref.uid, event.type, event.reason, event.message)
    about = {"kind": event.ref.kind, "namespace": event.ref.namespace, "name": event.ref.name, "uid": event.ref.uid}
    first_at = event.first_at or event.at
    return StoredObject(
        kind="Event",
        namespace=event.ref.namespace,
        name=f"{event.ref.name}.{stable_hash(content)}",
        uid=derived_uid("Event", *content),
        generation=0,
        resource_version=event.count,
        created_at=first_at,
        spec={
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "count": event.count,
            "firstTimestamp": serialize.timestamp(first_at),
            "lastTimestamp": serialize.timestamp(event.at),
            "involvedObject": {key: value for key, value in about.items() if value},
        },
    )
