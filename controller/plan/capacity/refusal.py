"""Refusal by a host: a sandbox that the scheduler bound to it, and that can't start here, is given back.

Only this host's daemon gives it back, and only what it never made anything for: so there is never a second copy.
"""

from datetime import datetime

from controller.kinds.meta import stored_condition
from controller.kinds.planning.binding import UNBOUND, binding_of
from controller.kinds.planning.plan import StatusWrite
from controller.plan.capacity import cordon, pressure
from controller.plan.capacity.waiting import WAITS
from controller.plan.common.plan_builder import PendingAdmission, PlanBuilder

REASON = "Refused"
REFUSAL_SECONDS = 10.0  # a host may become free within a moment, and another one is asked from the start


def refuses(builder: PlanBuilder, pending: PendingAdmission, reason: str, message: str) -> bool:
    """Give back an object that waits for this host alone. Return True if it is given back; else it waits here."""
    context, obj = pending.context, pending.context.obj
    chosen = builder.snapshot.waits is not None and obj.kind == "Sandbox" and binding_of(obj) > 0
    if not chosen or obj.spec.get("host") or obj.deleted_at is not None:
        return False
    if pending.instance is not None or context.container is not None or not _is_this_hosts(builder, obj.uid, reason):
        return False
    found = stored_condition(obj, "Scheduled")
    if found.get("status") != "False":
        return False  # it begins to wait
    since = datetime.fromisoformat(found["lastTransitionTime"]).timestamp()
    if context.now < since + REFUSAL_SECONDS:
        builder.wakes.append(since + REFUSAL_SECONDS)
        return False
    words = f"host {builder.snapshot.host} gives it back: {reason}: {message}"
    builder.events.append(context.event(REASON, words, warning=True))
    builder.statuses.append(StatusWrite(obj.ref, {**obj.status, "host": UNBOUND}))
    builder.memo.unsettle(obj.uid)
    return True


def _is_this_hosts(builder: PlanBuilder, uid: str, reason: str) -> bool:
    """Return True if another host may have what it waits for."""
    if reason in (cordon.REASON, pressure.REASON):
        return True
    found = builder.ledger.shortages if builder.ledger is not None else ()
    scopes = {each.scope for each in found if each.uid == uid}
    return reason == WAITS and scopes == {"host"}
