"""The deciders, as four lists in the order in which they are asked about one object.

PROPOSE: the decision from its own context; the first answer counts. AMEND: a proposed start is changed, deferred or
(None) dropped, by each in turn. WITHHOLD: capacity is refused to those that need some, in admission order; the first
refusal counts. COMPLETE: what the final decision needs around the sandbox is added, by each in turn. A decider returns
data; only plan/host.py combines the answers.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from controller.kinds.planning.action import WakeContainer
from controller.plan.base import cordon, pressure
from controller.plan.base.plan_builder import PendingAdmission, PlanBuilder
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.base.wake_slots import wake_slots
from controller.plan.capacity import builds, start_order
from controller.plan.capacity.waiting import STARTS_LATER, WAITS, WAKE_QUEUED
from controller.plan.network.networks import reconcile_networks
from controller.plan.pool import launch, preload
from controller.plan.sandbox import gpus, sandbox, user_ids

_T = TypeVar("_T")


class Withheld(NamedTuple):
    """Refusal of the capacity that a decision needs; `reason` and `message` are the Scheduled condition's."""

    reason: str
    message: str


def decide(context: ReconcileContext) -> Decision:
    """Return the decision for one object by itself: the first proposal of PROPOSE."""
    context, events = sandbox.observe(context)
    decision = first_answer(propose(context) for propose in PROPOSE)
    assert decision is not None, "the lifecycle decider has an answer to everything"
    return sandbox.settle(decision, events)


def first_answer(answers: Iterable[_T | None]) -> _T | None:
    """Return the first answer that is not None."""
    return next((answer for answer in answers if answer is not None), None)


def withhold_later_start(builder: PlanBuilder, pending: PendingAdmission) -> Withheld | None:
    message = start_order.pauses(builder.snapshot, pending.context, pending.claim.base, pending.claim.total)
    return Withheld(STARTS_LATER, message) if message else None


def withhold_pressure(builder: PlanBuilder, pending: PendingAdmission) -> Withheld | None:
    requested_claim = pending.claim
    message = pressure.pauses(builder.snapshot.host.pressure, requested_claim.base, requested_claim.total)
    return Withheld(pressure.REASON, message) if message else None


def withhold_cordon(builder: PlanBuilder, pending: PendingAdmission) -> Withheld | None:
    requested_claim = pending.claim
    message = cordon.pauses(builder.snapshot.fleet, requested_claim.base, requested_claim.total)
    return Withheld(cordon.REASON, message) if message else None


def withhold_quota(builder: PlanBuilder, pending: PendingAdmission) -> Withheld | None:
    assert builder.ledger is not None
    if pending.context.above_quota:
        return Withheld(WAITS, pending.context.above_quota)
    message = builder.ledger.admit(pending.context, pending.claim, pending.decision.state.claim.pool)
    return Withheld(WAITS, message) if message else None


def withhold_wake(builder: PlanBuilder, pending: PendingAdmission) -> Withheld | None:
    """Wake few hibernated sandboxes at once: each reads its memory from swap."""
    if not any(isinstance(action, WakeContainer) for action in pending.decision.actions):
        return None
    snapshot = builder.snapshot
    if snapshot.host.pressure.low:
        return Withheld(pressure.REASON, f"{snapshot.host.pressure.message()}: none is woken until it has recovered")
    slots = builder.wake_slots or wake_slots(snapshot)
    if not slots.free:
        builder.wake_slots = slots
        builder.wakes.append(slots.look_at(snapshot.now))
        return Withheld(WAKE_QUEUED, f"{slots.waking} others are being woken just now")
    builder.wake_slots = replace(slots, free=slots.free - 1, waking=slots.waking + 1)
    return None


def with_networks(_: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    return reconcile_networks(context, decision)


def with_user_id(_: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    return user_ids.require(context, decision)


PROPOSE: tuple[Callable[[ReconcileContext], Decision | None], ...] = (
    sandbox.reconcile_unknown,  # unknown is no state: nothing is decided on it
    sandbox.reconcile_deletion,
    sandbox.reconcile_guard,
    sandbox.reconcile_failure,
    sandbox.reconcile_refusal,
    sandbox.reconcile_duplicates,
    sandbox.reconcile_lifecycle,  # attestation (security) first, then run state
)
AMEND: tuple[Callable[[PlanBuilder, ReconcileContext, Decision], Decision | None], ...] = (
    preload.single_flight,
    launch.defer_renames,
    launch.launch,
)
WITHHOLD: tuple[Callable[[PlanBuilder, PendingAdmission], Withheld | None], ...] = (
    withhold_later_start,  # it asks for no capacity yet
    withhold_pressure,
    withhold_cordon,
    withhold_quota,
    withhold_wake,
)
COMPLETE: tuple[Callable[[PlanBuilder, ReconcileContext, Decision], Decision], ...] = (
    with_user_id,
    gpus.assign,
    with_networks,
    builds.build_missing,  # an egress container's image is built, too
)
