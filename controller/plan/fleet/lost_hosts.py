"""Lost hosts: those whose daemon is away, and the statuses of the sandboxes and runs on them.

These may go on, and nobody can tell. They stay bound.
"""

from collections.abc import Collection, Iterable, Iterator

from controller.kinds.host import host_of_lease
from controller.kinds.meta import Condition, StoredObject, stored_condition
from controller.kinds.planning.binding import UNBOUND, host_of
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.workflowrun import CONDITION
from controller.kinds.workflowrun import KIND as RUN
from controller.plan.base.status_json import dated
from controller.plan.fleet.unknown_hosts import REASON as UNKNOWN
from controller.ports.store import LeaseState

REASON = "HostLost"
_SANDBOX = "the sandbox may run on, and is not started elsewhere"


def away(leases: Iterable[LeaseState]) -> frozenset[str]:
    """Return the hosts whose lease has expired, by the store's clock: their daemon is away."""
    return frozenset(host_of_lease(lease.name) for lease in leases if lease.seconds_left < 0) - {""}


def lost_hosts(away_now: Collection[str], away_before: Collection[str], own_host: str) -> frozenset[str]:
    """Return the hosts that are lost: away in two checks in a row, for a daemon that restarts is away for a moment.

    The host of the daemon that asks is never lost, whatever its lease says.
    """
    return frozenset(away_now) & frozenset(away_before) - {own_host}


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
