"""Conclusion of one object: its decision is added to the plan, with all that the store has to hold of it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from controller.kinds.access.audit import AuditEntry
from controller.kinds.common.labels import container_name
from controller.kinds.meta import Event
from controller.kinds.planning.action import StartContainer
from controller.kinds.planning.instance_record import REFUSED, SANDBOX, Instance
from controller.kinds.planning.plan import Deferral, Deletion, Group, ProbeSchedule, Sample, StatusWrite
from controller.kinds.planning.snapshot import DesiredObjects
from controller.kinds.runtime.container import Limits
from controller.plan.base.memo import Timer
from controller.plan.base.plan_builder import PendingAdmission, PlanBuilder
from controller.plan.base.reasons import CLAIMING, WITHHELD
from controller.plan.base.reconcile_context import Decision, ReconcileContext, replace_if_changed
from controller.plan.network.networks import egress_record
from controller.plan.sandbox import hibernation, probes
from controller.plan.sandbox.status import status
from controller.policy.sandbox import NO_LIMITS

_ACTOR = "paddock"


def conclude(builder: PlanBuilder, pending: PendingAdmission, decision: Decision, reserves: Limits | None) -> None:
    """Add the final decision for one object. `reserves` None: it has no seat, and no record is made for it."""
    context, obj = pending.context, pending.context.obj
    builder.audit += _audited_starts(context, decision)
    waits = decision.until is not None or decision.sample is not None or decision.reason in WITHHELD
    waits = waits or context.network.lacks_subnet  # any network that goes may free one
    quiet = not (decision.actions or decision.finalize or waits)
    quiet = _write(builder, context, decision, pending.instance, reserves) and quiet and pending.quiet
    quiet = _write_egress(builder, pending, decision) and quiet
    if quiet:
        builder.memo.settle(obj.uid, pending.key)
    else:
        builder.memo.unsettle(obj.uid)
    watches = probes.watches(context, decision.state)
    if watches != (context.probed.watches if context.probed else ()):
        builder.probes.append(ProbeSchedule(obj.ref, watches))
    _add_timers(builder, context, decision)
    if decision.actions:
        urgent = decision.reason in (CLAIMING, hibernation.WAKING)
        builder.groups.append(Group(obj.ref, obj.generation, context.deleting, decision.actions, urgent))
    elif decision.reason and not decision.finalize:
        builder.deferrals.append(
            Deferral(ref=obj.ref, reason=decision.reason, message=decision.message, until=decision.until)
        )
    elif decision.deferred:
        builder.deferrals.append(
            Deferral(ref=obj.ref, reason="Deferred", message=decision.deferred, until=decision.until)
        )
    if decision.until is not None:
        builder.wakes.append(decision.until)


def _add_timers(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> None:
    """Add the timers, samples and holds of the decision."""
    uid, memo = context.obj.uid, builder.memo
    memo.timers.pop(uid, None)
    if decision.timer is not None:
        memo.timers[uid] = Timer(context.now, decision.timer)
        builder.wakes.append(decision.timer)
    if decision.sample is not None and context.container is not None:
        builder.samples.append(Sample(uid, context.container, decision.sample))
    if decision.hold is not None:
        builder.holds[uid] = decision.hold
    if decision.release is not None:
        builder.releases[uid] = decision.release
    if decision.reaped:
        builder.reaped.append(decision.reaped)


def _write(
    builder: PlanBuilder,
    context: ReconcileContext,
    decision: Decision,
    instance: Instance | None,
    reserves: Limits | None,
) -> bool:
    """Add what the store has to hold of this decision. Return True if it holds all of it already."""
    member = instance is not None and bool(instance.member_uid)
    # A member has no object of its own: its record is all that goes.
    if decision.finalize and member and instance is not None:
        builder.retired.append(instance)
        return False
    if decision.finalize:
        builder.finalized.append(context.obj.ref)
        return False
    builder.events += events_about(builder.snapshot.desired, instance, decision.events)
    if decision.delete:
        builder.deletions.append(Deletion(context.obj.ref, context.obj.generation, context.now))
    builder.drift[context.obj.uid] = decision.drift
    new_status = context.obj.status if member else status(context, decision)
    changed = new_status != context.obj.status
    if changed:
        builder.statuses.append(StatusWrite(context.obj.ref, new_status))
    record = record_of(context, decision, instance, reserves)
    if record is not None and record != instance:
        builder.instances.append(record)
    return not (changed or decision.events or decision.delete) and record == instance


def _write_egress(builder: PlanBuilder, pending: PendingAdmission, decision: Decision) -> bool:
    """Add what the store has to hold of the egress container. Return True if it holds all of it already."""
    stored = pending.context.network.record
    record, is_removed = egress_record(pending.context, decision, pending.instance, pending.claim.beside.total)
    if (
        is_removed
        and stored is not None
        and (not decision.finalize or (pending.instance and pending.instance.member_uid))
    ):
        builder.retired.append(stored)
    if record is not None and record != stored:
        builder.instances.append(record)
    return not is_removed and record == stored


def events_about(desired: DesiredObjects, instance: Instance | None, events: Iterable[Event]) -> Iterable[Event]:
    """Return the events; those of a pool's member are about its pool, which has a name that people know."""
    if instance is None or not instance.member_uid:
        return events
    ref, name = desired.pools[instance.parent_uid].obj.ref, instance.state.container.hostname
    return [replace(event, ref=ref, message=f"{name}: {event.message}") for event in events]


def record_of(
    context: ReconcileContext, decision: Decision, instance: Instance | None, reserves: Limits | None
) -> Instance | None:
    """Return the record of the object's container as it has to be before any action; None: it has none."""
    if instance is not None:
        role = instance.role if instance.member_uid else REFUSED if reserves is None else SANDBOX
        return replace_if_changed(instance, state=decision.state, reserves=reserves or NO_LIMITS, role=role)
    if reserves is None:
        return None
    obj = context.obj
    return Instance(
        name=container_name(obj.name, obj.uid),
        parent_uid=obj.uid,
        parent_kind=obj.kind,
        namespace=obj.namespace,
        parent_name=obj.name,
        role=SANDBOX,
        reserves=reserves,
        created_at=context.now,
        state=decision.state,
        host=context.host,
    )


def _audited_starts(context: ReconcileContext, decision: Decision) -> Iterator[AuditEntry]:
    """Yield an audit entry for each start of the sandbox's own container, if its level asks for one.

    The entries are stored with the plan, in one transaction: if the store cannot be written, nothing is started.
    """
    if context.rendered is None or not context.rendered.audited:
        return
    obj = context.obj
    for action in decision.actions:
        if isinstance(action, StartContainer) and action.uid == obj.uid:
            yield AuditEntry(
                at=context.now,
                actor=_ACTOR,
                source="",
                verb="start",
                kind=obj.kind,
                namespace=obj.namespace,
                name=obj.name,
                uid=obj.uid,
                detail={"generation": obj.generation, "container": action.name},
            )
