"""Waiting for capacity: the decision of an object that was not admitted, and its Scheduled condition."""

from collections.abc import Callable
from dataclasses import replace

from controller.kinds.meta import Condition, Event, StoredObject
from controller.plan.base.claim import Claim
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.capacity.reservations import smaller
from controller.plan.sandbox import hibernation, mounts

WAITS = "QuotaExceeded"
WAKE_QUEUED = "WakeQueued"  # others are being woken just now
STARTS_LATER = "StartsLater"  # others come first, as its spec says: nothing is wrong


def without_room(
    context: ReconcileContext,
    claim: Claim,
    message: str,
    decide: Callable[[ReconcileContext], Decision],
    reason: str = WAITS,
) -> Decision:
    """Return the decision for an object that was not admitted.

    It goes on with what it holds, or waits if that is nothing.
    """
    assert context.rendered is not None
    assert context.spec is not None
    if hibernation.is_frozen(context):
        return _stays_hibernated(context, decide, message, reason)
    config = context.rendered.config
    limits = replace(smaller(config.limits, claim.base), cpu_shares=config.limits.cpu_shares)
    if limits.pids and limits.gpus < config.limits.gpus:
        # It would have to be recreated, with devices that are not available.
        return Decision(context.state, deferred=message)
    if limits.cpu_millicores and limits.memory_bytes and limits.pids:
        within = replace(context.rendered, config=replace(mounts.as_bound(context, config), limits=limits))
        return replace(decide(replace(context, rendered=within)), deferred=message)
    # As one that is suspended: what is stopped stays so, and is kept in order.
    resting = decide(replace(context, spec=context.spec.model_copy(update={"run_state": "Suspended"})))
    # A pool's member has no status that records the event: its pool's Degraded condition reports it.
    silent = _waits(context.obj, reason) or context.is_pool_member or reason == STARTS_LATER
    events = () if silent else (context.event(reason, message, warning=True),)
    return replace(
        resting,
        reason=reason,
        message=message,
        events=(*resting.events, *events),
        scheduled=Condition("Scheduled", "False", reason, message),
    )


def _stays_hibernated(
    context: ReconcileContext, decide: Callable[[ReconcileContext], Decision], message: str, reason: str
) -> Decision:
    """Return the decision for a hibernated sandbox that may not be woken yet."""
    staying = decide(replace(context, stays_hibernated=True))
    events: tuple[Event, ...] = ()
    if not _waits(context.obj, reason) and reason != WAKE_QUEUED:
        events = (context.event(reason, f"it can't be woken yet: {message}", warning=True),)
    return replace(
        staying,
        reason=reason,
        message=f"hibernated, and waits to be woken: {message}",
        events=(*staying.events, *events),
        scheduled=Condition("Scheduled", "False", reason, message),
    )


def _waits(obj: StoredObject, reason: str = WAITS) -> bool:
    """Return True if its stored status says already that it waits for capacity."""
    conditions = obj.status.get("conditions", ())
    return any(condition["type"] == "Scheduled" and condition["reason"] == reason for condition in conditions)


def scheduled_condition(context: ReconcileContext, decision: Decision, claim: Claim) -> Condition:
    """Return the Scheduled condition of an object that has its capacity, or of which that is not known."""
    if not claim.seated and context.blind:
        return Condition("Scheduled", "Unknown", decision.reason, decision.message)
    if not claim.seated and not claim.wants_seat:
        return Condition("Scheduled", "False", decision.reason or "NotAccepted", decision.message)
    if context.blind and _waits(context.obj):
        return Condition("Scheduled", "Unknown", decision.reason, decision.message)
    return Condition("Scheduled", "True", "Assigned", "to this host")
