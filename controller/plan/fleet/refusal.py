"""Refusal by a host: a sandbox that the scheduler bound to it, and that can't start here, is given back.

Only this host's daemon gives it back, and only what it never made anything for: so there is never a second copy.
"""

from datetime import datetime

from controller.kinds.meta import stored_condition
from controller.kinds.planning.binding import IMAGE_NEEDED, UNBOUND, binding_of
from controller.kinds.planning.instance_state import Failure
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.runtime import agent
from controller.kinds.runtime.images import reference
from controller.plan.base import cordon, pressure
from controller.plan.base.backoff import IMAGE_BUILDING, is_backing_off, lacks_image
from controller.plan.base.plan_builder import PendingAdmission, PlanBuilder
from controller.plan.capacity.waiting import WAITS
from controller.plan.fleet.image_places import other_with
from controller.plan.sandbox import mounts
from controller.policy.network import egress

REASON = "Refused"
REFUSAL_SECONDS = 10.0  # a host may become free within a moment, and another one is asked from the start


def refuses(builder: PlanBuilder, pending: PendingAdmission, reason: str, message: str) -> bool:
    """Give back an object that waits for this host alone. Return True if it is given back; else it waits here."""
    context, obj = pending.context, pending.context.obj
    if not _is_chosen(builder, pending):
        return False
    if pending.instance is not None or context.container is not None or not _is_this_hosts(builder, obj.uid, reason):
        return False
    scheduled = stored_condition(obj, "Scheduled")
    if scheduled.get("status") != "False":
        return False  # it begins to wait
    since = datetime.fromisoformat(scheduled["lastTransitionTime"]).timestamp()
    if context.now < since + REFUSAL_SECONDS:
        builder.wakes.append(since + REFUSAL_SECONDS)
        return False
    message = f"host {builder.snapshot.fleet.host} gives it back: {reason}: {message}"
    builder.events.append(context.event(REASON, message, warning=True))
    builder.statuses.append(StatusWrite(obj.ref, {**obj.status, "host": UNBOUND}))
    builder.memo.unsettle(obj.uid)
    return True


def gives_back_image(builder: PlanBuilder, pending: PendingAdmission) -> bool:
    """Give back an object whose image can't be had here, and is on another host. Return True if it is given back."""
    context = pending.context
    obj = pending.context.obj
    failure = pending.decision.state.backoff.failure
    if not _is_chosen(builder, pending) or context.container is not None or context.extra or context.rendered is None:
        return False
    if failure is None or not is_backing_off(failure, obj.generation, context.deleting) or not _lacks_image(failure):
        return False
    config = context.rendered.config
    if any(mount.kind == "volume" for mount in mounts.desired_mounts(context, context.rendered)):
        return False  # made here already
    image_by_reason = {"EgressImageMissing": egress.IMAGE, "AgentImageMissing": agent.IMAGE}
    image = failure.image or image_by_reason.get(failure.reason, config.image)
    other_host = other_with(builder.snapshot.fleet.hosts.values(), builder.snapshot.fleet.host, image)
    if not other_host:
        return False
    own_host = builder.snapshot.fleet.host
    message = f"host {own_host} gives it back: host {other_host} has the image {image}"
    message = f"{message}, and {own_host} can't get it: {failure.message}"
    builder.events.append(context.event(REASON, message, warning=True))
    status = {**obj.status, "host": UNBOUND, IMAGE_NEEDED: reference(image)}
    builder.statuses.append(StatusWrite(obj.ref, status))
    builder.retired += [record for record in (pending.instance, context.network.record) if record is not None]
    builder.memo.unsettle(obj.uid)
    return True


def _lacks_image(failure: Failure) -> bool:
    """Return True if its image is missing here. A build takes longer than a start on a host that has the image."""
    return lacks_image(failure) or failure.reason == IMAGE_BUILDING


def _is_chosen(builder: PlanBuilder, pending: PendingAdmission) -> bool:
    """Return True if the scheduler chose this host for it."""
    obj = pending.context.obj
    chosen = builder.snapshot.fleet.waits is not None and obj.kind == "Sandbox" and binding_of(obj) > 0
    return chosen and not obj.spec.get("host") and obj.deleted_at is None


def _is_this_hosts(builder: PlanBuilder, uid: str, reason: str) -> bool:
    """Return True if another host may have what it waits for."""
    if reason in (cordon.REASON, pressure.REASON):
        return True
    shortages = builder.ledger.shortages if builder.ledger is not None else ()
    scopes = {shortage.scope for shortage in shortages if shortage.uid == uid}
    return reason == WAITS and scopes == {"host"}
