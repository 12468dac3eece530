"""Sandboxes and pools of hosts that there are not: one was misspelled, or was removed meanwhile. Nothing keeps them."""

from collections.abc import Collection, Iterable
from typing import Any

from controller.kinds.meta import Condition, Event, ObjectRef, StoredObject, stored_condition
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.planning.plan import StatusWrite, Writes
from controller.kinds.sandbox import FINALIZER
from controller.plan.base.status_json import dated

REASON = "HostUnknown"


def of_unknown_hosts(
    objects: Iterable[StoredObject], recorded: Collection[str], known_hosts: Collection[str], now: float
) -> Writes:
    """Return the writes for objects that are bound to none of the known hosts: what waits says so, deletions end.

    Those of the `recorded` uids may have containers: they are left alone, until a daemon of that name is back.
    """
    statuses: list[StatusWrite] = []
    events: list[Event] = []
    finalized: list[tuple[ObjectRef, str]] = []
    for obj in objects:
        if obj.uid in recorded:
            continue
        if obj.deleted_at is not None:
            finalized += [(obj.ref, FINALIZER)] if FINALIZER in obj.finalizers else []
        elif stored_condition(obj, "Scheduled").get("reason") != REASON:
            message = _unknown_host_message(host_of(obj, UNBOUND), known_hosts)
            statuses.append(StatusWrite(obj.ref, _status(obj, message, now)))
            events.append(Event(obj.ref, "Warning", REASON, message, now))
    return Writes(statuses=tuple(statuses), events=tuple(events), finalized=tuple(finalized))


def _unknown_host_message(host: str, known_hosts: Collection[str]) -> str:
    names = ", ".join(sorted(known_hosts)) or "none"
    return (
        f"there is no host `{host}` (known: {names}): delete this object and create it on another one, or start a "
        f"daemon with the setting host_name = {host}"
    )


def _status(obj: StoredObject, message: str, now: float) -> dict[str, Any]:
    """Return the status of an object whose host is not known; its other conditions stay."""
    conditions = [Condition(type_, "False", REASON, message) for type_ in ("Ready", "Scheduled")]
    other_conditions = [
        stored for stored in obj.status.get("conditions", ()) if stored["type"] not in ("Ready", "Scheduled")
    ]
    serialized = [
        dated(condition, stored_condition(obj, condition.type) or None, obj.generation, now) for condition in conditions
    ]
    return {**obj.status, "observedGeneration": obj.generation, "conditions": [*serialized, *other_conditions]}
