"""Objects that each belong to one host: lists are of all hosts, and a request for one goes to the host that has it.

A host that gives no answer fails no list: it is named as missing. A request for one object fails closed: it names its
host where several have one of that name, or one that may have it gives no answer.

Of a stored kind, each host knows the status of its own objects. A status that its host does not tell is the one that
every daemon can give, with the reason.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import HTTPConnection

from controller.api.common.models import PREFIX
from controller.api.fleet.collect import Answer, Missing, collect, unreadable
from controller.api.fleet.forwarding import Forwarding
from controller.api.fleet.identity import identity_of
from controller.kinds.host import NAME
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Column, Kind
from controller.service.errors import BadRequest, Conflict, NotFound, ServiceUnavailable
from controller.service.objects.objects import ObjectPage
from controller.service.services import Services

Hosts = list[dict[str, str]] | None
_HOST = Column("HOST", lambda obj, _now: str(obj.status.get("host", "-")))
_SELECTORS = ("labelSelector", "fieldSelector")


@dataclass(frozen=True, slots=True)
class OtherObjects:
    """Objects of the other hosts that answered, and those that did not. `host_name` is this host; "": it keeps none."""

    host_name: str
    objects: Sequence[StoredObject]
    answered: frozenset[str]
    missing: Sequence[Missing]


def list_everywhere(
    kind: Kind, connection: HTTPConnection, read_own: Callable[[], ObjectPage]
) -> tuple[ObjectPage, Hosts]:
    """Return the objects of all hosts that a list asks for, and the missing hosts (None: there is one host).

    `read_own` reads those of this one. On a worker thread of the request only.
    """
    other_objects = _read(kind, connection, _target(connection))
    if other_objects is None:
        return read_own(), None
    objects, missing = list(other_objects.objects), list(other_objects.missing)
    try:
        objects += read_own().objects if other_objects.host_name else ()
    except ServiceUnavailable as error:  # this host may be missing, too
        missing.append(Missing(other_objects.host_name, str(error)))
    return ObjectPage(sorted(objects, key=_order), 0), missing_as_json(missing)


def merge_statuses(kind: Kind, connection: HTTPConnection, own_page: ObjectPage) -> ObjectPage:
    """Return a list of a stored kind's objects, each with the status that its host gives.

    On a worker thread of the request only.
    """
    other_objects = _read(kind, connection, _target(connection))
    if other_objects is None:
        return own_page
    reasons = {missing_host.host: missing_host.message for missing_host in other_objects.missing}
    unseen = (stored for stored in own_page.objects if stored.status.get("host") not in other_objects.answered)
    return ObjectPage(
        sorted([*other_objects.objects, *(_without_status(stored, reasons) for stored in unseen)], key=_order),
        own_page.revision,
    )


def own_fields(kind: Kind, connection: HTTPConnection, fields: str) -> str:
    """Return a field selector, which another daemon asks for this host's objects alone."""
    forwarding = forwarding_of(connection)
    if not kind.seen_by_host or forwarding is None or identity_of(connection.scope) is None:
        return fields
    return ",".join(filter(None, (fields, f"status.host={own_host(forwarding)}")))


def merge_status(kind: Kind, connection: HTTPConnection, own_object: StoredObject) -> StoredObject:
    """Return an object of a stored kind with the status that its host gives. As `merge_statuses`."""
    forwarding, host = forwarding_of(connection), str(own_object.status.get("host", ""))
    if forwarding is None or host in ("", own_host(forwarding)):
        return own_object
    namespace = quote(own_object.namespace, safe="")
    path = f"{PREFIX}/namespaces/{namespace}/{kind.plural}?fieldSelector=metadata.name%3D{own_object.name}"
    other_objects = _read(kind, connection, path.encode(), host)
    if other_objects is None:
        return own_object
    reasons = {missing_host.host: missing_host.message for missing_host in other_objects.missing}
    return next(
        (stored for stored in other_objects.objects if stored.uid == own_object.uid),
        _without_status(own_object, reasons),
    )


def _without_status(obj: StoredObject, reasons: Mapping[str, str]) -> StoredObject:
    """Return the object with the reason why its host told nothing of it."""
    host = str(obj.status.get("host", ""))
    message = f"host `{host}` gives no answer: {reasons[host]}" if host in reasons else ""
    return replace(obj, status={**obj.status, "message": message}) if message else obj


def _target(connection: HTTPConnection) -> bytes:
    """Return the path of a list with its selectors."""
    selectors = {name: connection.query_params[name] for name in _SELECTORS if name in connection.query_params}
    path: bytes = connection.scope["raw_path"].partition(b"?")[0]
    return path + (f"?{urlencode(selectors)}".encode() if selectors else b"")


def with_column(kind: Kind, connection: HTTPConnection) -> Kind:
    """Return the kind, with a column for the host if each object belongs to one and there may be several."""
    if not (kind.by_host or kind.seen_by_host) or forwarding_of(connection) is None:
        return kind
    return replace(kind, columns=(_HOST, *kind.columns))


def _order(obj: StoredObject) -> tuple[str, str, str]:
    return obj.namespace, obj.name, str(obj.status.get("host", ""))


def missing_as_json(missing: Sequence[Missing]) -> list[dict[str, str]]:
    """Return missing hosts as lists name them."""
    return [{"host": missing_host.host, "message": missing_host.message} for missing_host in missing]


def send_on(kind: Kind, connection: HTTPConnection, services: Services, namespace: str, name: str) -> None:
    """Raise Elsewhere if another host has the object; return if this one answers.

    The query may name the host. Raises NotFound without such a host; Conflict if the object's host can't be told;
    ServiceUnavailable if nothing is found, and a host gives no answer. On a worker thread of the request only.
    """
    forwarding, host_name = forwarding_of(connection), connection.query_params.get("host", "")
    if forwarding is None or host_name:
        to_host(connection, host_name, f"{kind.name.lower()} `{name}`")
        return
    path = f"{PREFIX}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
    other_objects = _read(kind, connection, path.encode())
    if other_objects is None:
        return
    hosts = [str(stored.status["host"]) for stored in other_objects.objects if stored.name == name]
    missing = list(other_objects.missing)
    try:
        if other_objects.host_name:
            services.objects.get(kind, namespace, name)
            hosts.append(other_objects.host_name)
    except NotFound:
        pass
    except ServiceUnavailable as error:
        missing.append(Missing(other_objects.host_name, str(error)))
    to_host(connection, _only(kind, connection, name, hosts, missing), f"{kind.name.lower()} `{name}`")


def _only(kind: Kind, connection: HTTPConnection, name: str, hosts: Sequence[str], missing: Sequence[Missing]) -> str:
    """Return the host that has the object, "" if none has. Raises Conflict; ServiceUnavailable."""
    subject, silent = (
        f"{kind.name.lower()} `{name}`",
        ", ".join(f"{missing_host.host} ({missing_host.message})" for missing_host in missing),
    )
    if len(hosts) > 1:
        host_names = ", ".join(sorted(hosts))
        raise Conflict(f"{subject} is on several hosts ({host_names}); name one (`--host`, query `host`)", name=name)
    if not missing or (hosts and connection.scope["method"] == "GET"):
        return hosts[0] if hosts else ""
    if hosts:
        message = f"{subject} is on host {hosts[0]}, and may be on one that gives no answer, too: {silent}"
        raise Conflict(f"{message}; name its host (`--host`, query `host`)", name=name)
    raise ServiceUnavailable(f"{subject} is on no host that answers, and these give no answer: {silent}; try again")


def to_host(connection: HTTPConnection, host: str, what: str) -> None:
    """Raise Elsewhere if that is another host; return if it is this one, or "". Raises NotFound without such a host."""
    if not host or identity_of(connection.scope) is not None:
        return
    forwarding = forwarding_of(connection)
    own_name = forwarding.locations.host if forwarding is not None else NAME
    if host == own_name:
        return
    other_hosts = (
        {other_host.name: other_host for other_host in forwarding.locations.other_hosts()}
        if forwarding is not None
        else {}
    )
    if forwarding is None or host not in other_hosts:
        raise NotFound(
            f"host `{host}`: there is no host of that name; see `paddock get hosts`", kind="hosts", name=host
        )
    raise forwarding.to_host(connection, other_hosts[host], what)


def work_on(connection: HTTPConnection, host: str, what: str) -> None:
    """Do as `to_host`. Raises BadRequest if no host is named, and this daemon keeps none."""
    forwarding = forwarding_of(connection)
    if not host and forwarding is not None and not forwarding.locations.keeps_host:
        raise BadRequest(f"{what}: this daemon keeps no host; name one (`--host`, query `host`)")
    to_host(connection, host, what)


def own_host(forwarding: Forwarding) -> str:
    """Return the name of this daemon's host; "": it keeps none."""
    return forwarding.locations.host if forwarding.locations.keeps_host else ""


def forwarding_of(connection: HTTPConnection) -> Forwarding | None:
    """Return the way to other hosts; None: there is one host."""
    forwarding: Forwarding | None = connection.app.state.forwarding
    return forwarding


def _read(kind: Kind, connection: HTTPConnection, target: bytes, only: str = "") -> OtherObjects | None:
    """Return the objects in the other hosts' answers to that request; None: only this host is asked. As `collect`."""
    collected, forwarding = collect(connection, target, only), forwarding_of(connection)
    if collected is None or forwarding is None:
        return None
    objects: list[StoredObject] = []
    unread: list[Missing] = []
    for host, answer in collected.answers.items():
        try:
            objects += _objects(kind, host, answer)
        except (KeyError, TypeError, ValueError):
            unread.append(unreadable(host))
    answered = frozenset(collected.answers) - {missing_host.host for missing_host in unread}
    return OtherObjects(own_host(forwarding), objects, answered, [*collected.missing, *unread])


def _objects(kind: Kind, host: str, answer: Answer) -> Iterator[StoredObject]:
    """Yield the objects of a host's list. Raises KeyError, TypeError, ValueError."""
    if answer["kind"] != f"{kind.name}List":
        raise ValueError("it is no list of that kind")
    for entry in answer["items"]:
        metadata: Mapping[str, Any] = entry["metadata"]
        created_time = metadata.get("creationTimestamp", "")
        yield StoredObject(
            kind=kind.name,
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            uid=str(metadata["uid"]),
            generation=0,
            resource_version=int(metadata.get("resourceVersion", 0)),
            owner_references=tuple(metadata.get("ownerReferences", ())),
            labels=dict(metadata.get("labels", {})),
            created_at=datetime.fromisoformat(created_time).timestamp() if created_time else 0.0,
            spec=dict(entry["spec"]),
            status={**entry["status"], "host": host},
        )
