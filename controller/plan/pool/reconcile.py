"""Reconciliation of the pools, after their members: members to add and to retire, statuses and figures."""

from collections.abc import Sequence
from dataclasses import replace

from controller.kinds.planning.instance_record import RETIRED, WARM
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.planning.snapshot import Pool
from controller.kinds.quota import Amount, Ceiling, replicas_scope
from controller.kinds.sandbox import FINALIZER
from controller.kinds.sandboxpool import whole_uid
from controller.plan.capacity import cordon, preemption, preload, pressure
from controller.plan.common.contexts import context_with, rendered_with
from controller.plan.common.instance_index import index_of
from controller.plan.common.plan_builder import PlanBuilder
from controller.plan.pool.claim_candidates import ready_key
from controller.plan.pool.sandboxpool import (
    WAITING,
    Member,
    member_of,
    member_spec,
    plan_turnover,
    ready_ones,
    replicas,
    retirements,
)
from controller.policy.sandbox import admit_with


def reconcile_pools(builder: PlanBuilder) -> None:
    """Reconcile all pools; the first to give way to pending sandboxes come first."""
    for each in preemption.in_order(builder.snapshot.pools.values()):
        reconcile_pool(builder, each)


def reconcile_pool(builder: PlanBuilder, pool: Pool) -> None:
    """Add what one pool needs, given the decisions for its members."""
    snapshot, policy, memo = builder.snapshot, builder.policy, builder.memo
    if snapshot.observed.blind:
        return
    index, uid = index_of(snapshot.instances), whole_uid(pool.obj)
    own = [snapshot.instances[each] for each in index.members.get(pool.obj.uid, ())]
    total = index.of_pools.get(uid, 0)
    decided = {each.uid: each for each in builder.instances}
    members = []
    for each in own:
        if each.role == WARM:
            sandbox = memo.member(pool, each)
            rendered, _ = rendered_with(sandbox, policy, memo, each.memory)
            now_known = decided.get(each.uid, each)
            context = context_with(snapshot, sandbox, policy, memo, now_known.memory)
            hibernates = snapshot.hibernation.available
            made_of = member_of(pool, now_known, context.container, rendered, snapshot.now, hibernates=hibernates)
            short = builder.short.get(each.uid)
            members.append(replace(made_of, trouble=f"QuotaExceeded: {short}") if short else made_of)
    going = sum(each.role == RETIRED for each in own)
    held = total - len(members) - going
    awaited = held + builder.granted[uid] + builder.queued[uid]
    crowded = builder.ledger is not None and not {pool.obj.namespace, ""}.isdisjoint(builder.ledger.crowded)
    lacks = snapshot.pressure.words()
    image = "" if total or lacks else preload.pool_scope(builder, snapshot, pool, policy, memo)
    taken, now, host = snapshot.instances.keys(), snapshot.now, snapshot.host
    wanted, free = _of_whole(builder, pool)
    wanted = _drained(wanted) if cordon.drained(snapshot) else wanted
    made = plan_turnover(wanted, members, going, held, awaited, taken, now, lacks, image, host, free)
    builder.events += pressure.retirement_events(pool.obj.ref, made.retired, snapshot.pressure, snapshot.now)
    made = preemption.give_way(builder, snapshot, pool, made, members)
    if free is not None and pool.spec is not None and (made.new or builder.granted[uid]):
        builder.ceilings.append(Ceiling(replicas_scope(uid), Amount(sandboxes=pool.spec.max_replicas or 0)))
    builder.warm += ready_ones(pool, members)
    if not snapshot.alone:
        _offer(builder, pool, members)
    leaving = {each.uid for each in made.retired}
    busy = snapshot.in_flight | {each.ref.uid for each in builder.groups}
    builder.instances = [each for each in builder.instances if each.uid not in leaving - busy]
    gone = [each for each in made.retired if each.uid not in busy]
    builder.instances += (*gone, *made.new)
    builder.retirements += retirements(pool, members, gone, crowded=crowded or bool(lacks), now=snapshot.now)
    status = {**made.status, "host": snapshot.host}
    if free is not None and builder.queued[uid]:  # warm members on other hosts have to give way, too
        status[WAITING] = builder.queued[uid]
    if status != pool.obj.status:
        builder.statuses.append(StatusWrite(pool.obj.ref, status))
    if made.until is not None:
        builder.wakes.append(made.until)
    if pool.obj.deleted_at is not None and not members and not going and FINALIZER in pool.obj.finalizers:
        builder.finalized.append(pool.obj.ref)


def _of_whole(builder: PlanBuilder, pool: Pool) -> tuple[Pool, int | None]:
    """Return the pool, and the number of members that its maximum over all hosts leaves; None if that is its own.

    Of a part, the maximum takes no warm member away: its `warmReplicas` do, and sandboxes here that wait for a place.
    """
    uid, spec = whole_uid(pool.obj), pool.spec
    if uid == pool.obj.uid or spec is None or spec.max_replicas is None:
        return pool, None
    warm = max(0, spec.warm_replicas - builder.queued[uid])
    free = spec.max_replicas - replicas(builder.snapshot, uid) - builder.granted[uid] - builder.queued[uid]
    return replace(pool, spec=spec.model_copy(update={"max_replicas": None, "warm_replicas": warm})), free


def _drained(pool: Pool) -> Pool:
    """Return the pool as one that wants nothing ready: its host is being emptied."""
    return replace(pool, spec=pool.spec.model_copy(update={"warm_replicas": 0})) if pool.spec is not None else pool


def _offer(builder: PlanBuilder, pool: Pool, members: Sequence[Member]) -> None:
    """Record which members the daemons of other hosts may claim: those that are ready, by what they are."""
    spec = member_spec(pool)
    if spec is None or pool.template is None or admit_with(spec, pool.template, builder.policy):
        return
    key = ready_key(spec, pool.template, pool.obj.namespace, builder.policy)
    decided = {each.uid: each for each in builder.instances}
    for each in members:
        now = decided.get(each.instance.uid, each.instance)
        wanted = key if each.ready and pool.obj.deleted_at is None else ""
        free = now.uid not in builder.snapshot.in_flight
        if free and now.role == WARM and now.memory.ready_key != wanted:
            decided[now.uid] = replace(now, memory=replace(now.memory, ready_key=wanted))
    builder.instances = list(decided.values())
