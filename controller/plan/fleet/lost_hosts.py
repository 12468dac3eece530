"""Sandboxes of hosts whose daemon is away, and runs in them: they may go on, and nobody can tell. They stay bound."""

from collections.abc import Collection, Iterable, Iterator

from controller.kinds.meta import Condition, StoredObject, stored_condition
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.workflowrun import CONDITION
from controller.kinds.workflowrun import KIND as RUN
from controller.plan.base.status_json import dated
from controller.plan.fleet.unknown_hosts import REASON as UNKNOWN

REASON = "HostLost"
_SANDBOX = "the sandbox may run on, and is not started elsewhere"


def lost_statuses(objects: Iterable[StoredObject], lost: Collection[str], now: float) -> Iterator[StatusWrite]:
    """Yield the statuses of the sandboxes and runs on lost hosts that do not say so yet; what is finished stays so.

    `lost` are names of hosts. A daemon that is back writes its own statuses over these.
    """
    for obj in objects:
        host, is_run = host_of(obj, UNBOUND), obj.kind == RUN.name
        type_ = CONDITION if is_run else "Ready"
        prior = stored_condition(obj, type_)
        if stored_condition(obj, "Scheduled").get("reason") == UNKNOWN:
            continue
        if host not in lost or prior.get("reason") == REASON or "completionTime" in obj.status:
            continue
        outlook = "the stage may run on, and the run goes on once that is back" if is_run else _SANDBOX
        message = f"the daemon of host {host} is away; {outlook}"
        condition = dated(Condition(type_, "Unknown", REASON, message), prior or None, obj.generation, now)
        other_conditions = [stored for stored in obj.status.get("conditions", ()) if stored["type"] != type_]
        yield StatusWrite(obj.ref, {**obj.status, "conditions": [condition, *other_conditions]})
