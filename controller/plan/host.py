"""The whole host in one pass: plan(snapshot) -> Plan. It asks the deciders of plan/deciders.py about each object.

Called by the loop and by `diff`. It makes no call and keeps nothing but a memo, which changes no answer.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from types import MappingProxyType

from controller.kinds.common.labels import egress_uid
from controller.kinds.common.tracked_map import changed_keys, tracked
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.plan import Plan, StatusWrite, Writes
from controller.kinds.planning.snapshot import DesiredObjects, Sandbox, Snapshot
from controller.kinds.quota import Amount
from controller.kinds.sandbox import FINALIZER
from controller.plan.base.backoff import fold
from controller.plan.base.events import result_events
from controller.plan.base.instance_index import index_of, moved_sums
from controller.plan.base.ledger import CapacityLedger, admission_order
from controller.plan.base.memo import HostKey, Memo, QuotasKey, Seen, Settled
from controller.plan.base.plan_builder import PendingAdmission, PlanBuilder
from controller.plan.base.reconcile_context import Decision, ReconcileContext, replace_if_changed
from controller.plan.capacity import wake_queue
from controller.plan.capacity.orphans import sweep
from controller.plan.capacity.quota_status import quota_statuses
from controller.plan.capacity.reservations import claim
from controller.plan.capacity.waiting import scheduled_condition, without_room
from controller.plan.conclude import conclude, events_about, record_of
from controller.plan.deciders import AMEND, COMPLETE, WITHHOLD, decide, first_answer
from controller.plan.fleet import refusal
from controller.plan.fleet.unbound import reconcile_unbound
from controller.plan.modelserver import reconcile_model_servers
from controller.plan.network import stray_networks
from controller.plan.pool import launch, preload
from controller.plan.pool import sandboxpool as pools
from controller.plan.pool.reconcile import reconcile_pools
from controller.plan.provider import reconcile_providers
from controller.plan.sandbox import disk_limit, hibernation
from controller.plan.sandbox.log_tail import remember
from controller.plan.sandbox.object_context import context_with
from controller.plan.securityprofile import reconcile_profiles
from controller.policy.levels.levels import Policy


def plan(snapshot: Snapshot, policy: Policy, policy_version: str, memo: Memo | None = None) -> Plan:
    """Decide for every object that has nothing in flight. A host that was never observed gets an empty plan."""
    if snapshot.observed.revision == 0:
        return Plan(snapshot.now)
    memo = memo if memo is not None else Memo()
    memo.fit(policy_version)
    snapshot = pools.without_used(replace(snapshot, instances=tracked(snapshot.instances)), memo.judged)
    builder = PlanBuilder(snapshot, policy, memo, pulling=preload.under_way(snapshot.progress, memo))
    for step in _STEPS:
        step(builder)
    return _finish(builder)


def _reconcile_sandboxes(builder: PlanBuilder) -> None:
    """Decide for all sandboxes and pool members; those that need capacity are left pending."""
    snapshot, memo = builder.snapshot, builder.memo
    members = _members(snapshot.desired, snapshot.instances, memo)
    launch.limit_starts(builder, snapshot, members)
    for sandbox_, key in _unsettled_objects(snapshot, members, memo, builder.wakes):
        if not wake_queue.is_skipped(builder, sandbox_):
            _reconcile_sandbox(builder, sandbox_, key)


def _members(desired: DesiredObjects, instances: Mapping[str, Instance], memo: Memo) -> Mapping[str, Sandbox]:
    """Return the warm and retired members of all pools in the form of sandboxes, by uid."""
    if not desired.pools:
        return {}
    return {
        uid: memo.member(desired.pools[pool], instances[uid])
        for pool, uids in index_of(instances).members.items()
        if pool in desired.pools
        for uid in uids
    }


def _host_key(snapshot: Snapshot, memo: Memo) -> HostKey:
    """Return what all decisions of a pass depend on."""
    observed = snapshot.observed
    return HostKey(
        blind=observed.blind,
        lost=observed.lost,
        short_of=snapshot.host.pressure.critical,
        unguarded=observed.unguarded or snapshot.host.canary.message,
        guard_lost=observed.guard_lost,
        guard_broken=snapshot.host.canary.broken,
        weights=memo.weight_bounds(snapshot),
        hibernates=snapshot.host.hibernation.available,
    )


def _inputs(snapshot: Snapshot, members: Mapping[str, Sandbox], host: HostKey) -> Seen:
    """Return what this pass decides by."""
    return Seen(
        sandboxes=snapshot.desired.sandboxes,
        members=members,
        containers=snapshot.observed.containers,
        instances=snapshot.instances,
        probes=snapshot.measured.probes,
        activity=snapshot.measured.activity,
        models=snapshot.models.gateway.sandboxes,
        host=host,
        in_flight=snapshot.progress.in_flight,
    )


def _unsettled_objects(
    snapshot: Snapshot, members: Mapping[str, Sandbox], memo: Memo, wakes: list[float]
) -> Iterator[tuple[Sandbox, Settled]]:
    """Yield the objects that may need something: all but those in flight and the settled ones that did not change.

    The timers of the latter go into `wakes`.
    """
    containers, instances = snapshot.observed.containers, snapshot.instances
    settled, in_flight, timers = memo.settled, snapshot.progress.in_flight, memo.timers
    observed, host = snapshot.observed, _host_key(snapshot, memo)
    memo.forget_networks(observed.networks)
    models = snapshot.models.gateway.sandboxes
    unmeasured = disk_limit.unmeasured_reasons(observed, snapshot.measured)
    unresolved_hosts = snapshot.measured.unresolved_hosts
    changed_uids = snapshot.progress.results.keys() | disk_limit.over_limit(snapshot)
    changed_uids |= changed_keys(memo.unmeasured, unmeasured) | changed_keys(memo.unresolved, unresolved_hosts)
    probed, activity, now = snapshot.measured.probes, snapshot.measured.activity, snapshot.now
    seen_now = _inputs(snapshot, members, host)
    candidates = memo.candidates(seen_now, changed_uids)
    candidates |= _due(memo, candidates, seen_now, now, wakes)
    for uid in seen_now.in_order(candidates):
        planned = seen_now.planned(uid)
        if uid in in_flight or planned is None:
            continue
        inputs = Settled(
            sandbox=planned,
            containers=containers.get(uid),
            instance=instances.get(uid),
            host=host,
            probed=probed.get(uid),
            activity=activity.get(uid),
            egress=containers.get(egress_uid(uid)) if observed.networks else None,
            models=models.get(uid),
        )
        former = settled.get(uid)
        if former is not None and uid not in changed_uids and _are_same(former, inputs):
            timer = timers.get(uid)
            if timer is None:
                continue
            if timer.since <= now < timer.due:
                wakes.append(timer.due)
                continue
        memo.unsettle(uid)  # until it is concluded: its start may have to wait
        yield planned, inputs
    memo.unmeasured, memo.unresolved = unmeasured, unresolved_hosts
    memo.last_pass = seen_now  # not earlier: after a failure, the next pass compares with the one before


def _are_same(former: Settled, inputs: Settled) -> bool:
    """Return True if nothing that a decision depends on has changed: what did not is the same Python object."""
    return (
        former.sandbox is inputs.sandbox
        and former.containers is inputs.containers
        and former.instance is inputs.instance
        and former.host == inputs.host
        and former.probed is inputs.probed
        and former.activity is inputs.activity
        and former.egress is inputs.egress
        and former.models is inputs.models
    )


def _due(memo: Memo, candidates: Set[str], this_pass: Seen, now: float, wakes: list[float]) -> set[str]:
    """Return the objects beside the candidates whose timers are due. The others' timers go into `wakes`."""
    due_uids = set()
    for uid, timer in memo.timers.items():
        if uid in candidates or uid in this_pass.in_flight or this_pass.planned(uid) is None:
            continue
        if timer.since <= now < timer.due:
            wakes.append(timer.due)
        else:
            due_uids.add(uid)
    return due_uids


def _reconcile_sandbox(builder: PlanBuilder, sandbox: Sandbox, key: Settled) -> None:
    """Decide for one object and add the decision to the plan, or leave it pending if it needs capacity."""
    snapshot, uid = builder.snapshot, sandbox.obj.uid
    instance, result = snapshot.instances.get(uid), snapshot.progress.results.get(uid)
    state = instance.state if instance else InstanceState()
    if result is not None:
        state = remember(fold(state, result, snapshot.now), result)
        builder.events += events_about(snapshot.desired, instance, result_events(sandbox.obj, result, snapshot.now))
    context = context_with(snapshot, sandbox, builder.policy, builder.memo, state)
    decision = _amend(builder, context, decide(context))
    if decision is None:
        return
    pending = PendingAdmission(
        context, decision, claim(context, decision, instance), instance, key, quiet=result is None
    )
    if refusal.gives_back_image(builder, pending):
        return
    if pending.claim.asks:
        builder.pending.append(pending)
        return
    decision = replace_if_changed(decision, scheduled=scheduled_condition(context, decision, pending.claim))
    reserves = pending.claim.total if pending.claim.seated else None
    conclude(builder, pending, _complete(builder, context, decision), reserves)


def _amend(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision | None:
    """Return the decision as the pools leave it; None: the start waits for a later pass."""
    for amend in AMEND:
        amended = amend(builder, context, decision)
        if amended is None:
            return None
        decision = amended
    return decision


def _complete(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with devices and networks for it."""
    for complete in COMPLETE:
        decision = complete(builder, context, decision)
    return decision


def _admit_pending(builder: PlanBuilder) -> None:
    """Conclude the pending decisions in admission order, after all that hold or free capacity."""
    if not builder.pending:
        return
    builder.ledger = _ledger(builder)
    for pending in sorted(builder.pending, key=_order):
        withheld = first_answer(withhold(builder, pending) for withhold in WITHHOLD)
        if withheld is None:
            conclude(builder, pending, _complete(builder, pending.context, pending.decision), pending.claim.total)
            continue
        if pending.context.is_pool_member:
            builder.shortages[pending.context.obj.uid] = withheld.message
        if refusal.refuses(builder, pending, withheld.reason, withheld.message):
            continue
        decision = without_room(pending.context, pending.claim, withheld.message, decide, withheld.reason)
        # Never settled: decided in every pass, since anything may free capacity.
        reserves = pending.claim.base if pending.claim.seated else None
        waiting = replace(pending, quiet=False, claim=pending.claim.without_capacity())
        conclude(builder, waiting, _complete(builder, pending.context, decision), reserves)


def _order(pending: PendingAdmission) -> tuple[bool, bool, int, float, str, str, str]:
    return admission_order(pending.context, frozen=hibernation.is_frozen(pending.context))


def _ledger(builder: PlanBuilder) -> CapacityLedger:
    """Return the capacity ledger, with what each pending object holds whether it is admitted or not."""
    snapshot, removed = builder.snapshot, {ref.uid for ref in builder.finalized}
    records = [_record_without_request(admission) for admission in builder.pending]
    new_records: dict[str, Instance | None] = {
        record.uid: record for record in (*builder.instances, *filter(None, records))
    }
    new_records |= dict.fromkeys(removed_uid for uid in removed for removed_uid in (uid, egress_uid(uid)))
    new_records = {
        uid: None if record is None or record.parent_uid in removed else record for uid, record in new_records.items()
    }
    changes = ((snapshot.instances.get(uid), record) for uid, record in new_records.items())
    usage = moved_sums(index_of(snapshot.instances).reserved, changes)
    for scope, amount in (*snapshot.fleet.elsewhere.items(), *snapshot.fleet.pools_elsewhere.items()):
        usage[scope] = usage.get(scope, Amount()) + amount
    return CapacityLedger(
        usage, snapshot.rules.quotas, snapshot.observed.facts, snapshot.desired.pools.values(), snapshot.fleet.host
    )


def _record_without_request(pending: PendingAdmission) -> Instance | None:
    """Return the record of a pending object, without what it asks for."""
    base = pending.claim.base if pending.claim.seated else None
    return record_of(pending.context, pending.decision, pending.instance, base)


def _reconcile_quotas(builder: PlanBuilder) -> None:
    """Add the quotas' statuses, when anything that they are computed from may have changed."""
    snapshot, memo = builder.snapshot, builder.memo
    sizes = (len(snapshot.instances), snapshot.fleet.elsewhere)
    key = QuotasKey(snapshot.rules.quotas, snapshot.observed.facts, sizes, snapshot.rules.object_counts)
    has_changes = bool(builder.instances or builder.finalized)
    if not snapshot.rules.quotas or (not has_changes and memo.quotas == key):
        return
    ledger = builder.ledger or _ledger(builder)
    statuses = quota_statuses(ledger, snapshot)
    writes = [StatusWrite(quota.obj.ref, status) for quota, status in statuses]
    builder.statuses += writes
    memo.quotas = None if has_changes or writes else key


def _sweep(builder: PlanBuilder) -> None:
    """Remove containers and networks that belong to no object, after the objects' own deletions."""
    builder.orphans = swept = sweep(builder.snapshot, builder.memo.orphans)
    builder.groups += swept.groups
    builder.deferrals += swept.deferrals
    builder.events += swept.events
    builder.wakes += [deferral.until for deferral in swept.deferrals if deferral.until is not None]
    stray_networks.sweep(builder, builder.snapshot, builder.memo)


def _reconcile_shared(builder: PlanBuilder) -> None:
    """Reconcile what belongs to no host, if it is for this one to do."""
    if builder.snapshot.fleet.leads:
        for step in _SHARED:
            step(builder)


# The steps of one pass, in order: a step sees in the builder what those before it decided.
_STEPS = (
    _reconcile_sandboxes,
    _admit_pending,
    wake_queue.look_again,
    _reconcile_quotas,
    _reconcile_shared,
    reconcile_pools,
    _sweep,
)
_SHARED = (
    reconcile_profiles,
    reconcile_providers,
    reconcile_model_servers,
    reconcile_unbound,
)


def _finish(builder: PlanBuilder) -> Plan:
    """Return the plan as it was built."""
    return Plan(
        now=builder.snapshot.now,
        groups=tuple(builder.groups),
        deferrals=tuple(builder.deferrals),
        writes=Writes(
            statuses=tuple(builder.statuses),
            instances=tuple(builder.instances),
            events=tuple(builder.events),
            finalized=tuple((ref, FINALIZER) for ref in builder.finalized),
            retired=tuple(builder.retired),
            deletions=tuple(builder.deletions),
            audit=tuple(builder.audit),
            ceilings=(
                *(builder.ledger.ceilings(builder.snapshot.fleet.host) if builder.ledger else ()),
                *builder.ceilings,
            ),
        ),
        next_wake=min(builder.wakes, default=None),
        probes=tuple(builder.probes),
        drift=MappingProxyType(builder.drift),
        orphans=builder.orphans.stray_count,
        orphans_removed=builder.orphans.removed,
        samples=tuple(builder.samples),
        holds=MappingProxyType(builder.holds),
        releases=MappingProxyType(builder.releases),
        reaped=tuple(builder.reaped),
        shortages=tuple(builder.ledger.shortages) if builder.ledger else (),
        claimable=tuple(builder.claimable),
        retirements=tuple(builder.retirements),
        queued=frozenset(builder.skipped_wakes),
    )
