"""Reconciliation of the pools, after their members: members to add and to retire, statuses and figures."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.kinds.common.labels import container_name
from controller.kinds.planning.instance_record import RETIRED, WARM, Instance
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.planning.snapshot import Pool
from controller.kinds.quota import Amount, Ceiling, replicas_scope
from controller.kinds.sandbox import FINALIZER
from controller.kinds.sandboxpool import whole_uid
from controller.plan.base import cordon, pressure
from controller.plan.base.instance_index import index_of
from controller.plan.base.members import member_spec
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.pool import preemption, preload
from controller.plan.pool.claim_candidates import ready_key
from controller.plan.pool.sandboxpool import (
    WAITING,
    Member,
    PoolCount,
    member_of,
    plan_turnover,
    ready_ones,
    replicas,
    retirements,
)
from controller.plan.sandbox.object_context import own_containers, rendered_with
from controller.policy.sandbox import admit_with


def reconcile_pools(builder: PlanBuilder) -> None:
    """Reconcile all pools; the first to give way to pending sandboxes come first."""
    for pool in preemption.in_order(builder.snapshot.pools.values()):
        reconcile_pool(builder, pool)


def reconcile_pool(builder: PlanBuilder, pool: Pool) -> None:
    """Add what one pool needs, given the decisions for its members."""
    snapshot = builder.snapshot
    policy = builder.policy
    memo = builder.memo
    if snapshot.observed.blind:
        return
    index, uid = index_of(snapshot.instances), whole_uid(pool.obj)
    own_members = [snapshot.instances[member_uid] for member_uid in index.members.get(pool.obj.uid, ())]
    total = index.of_pools.get(uid, 0)
    members = _warm_members(builder, pool, own_members)
    retiring = sum(member.role == RETIRED for member in own_members)
    claimed = total - len(members) - retiring
    demand = claimed + builder.granted[uid] + builder.queued[uid]
    is_crowded = builder.ledger is not None and not {pool.obj.namespace, ""}.isdisjoint(builder.ledger.crowded)
    pressure_message = snapshot.pressure.message()
    image = "" if total or pressure_message else preload.pool_scope(builder, snapshot, pool, policy, memo)
    whole_pool, free = _of_whole(builder, pool)
    whole_pool = _drained(whole_pool) if cordon.drained(snapshot) else whole_pool
    turnover = plan_turnover(
        whole_pool,
        members,
        PoolCount(retiring, claimed, demand, free),
        used_uids=snapshot.instances.keys(),
        now=snapshot.now,
        pressure_message=pressure_message,
        image=image,
        host=snapshot.fleet.host,
    )
    builder.events += pressure.retirement_events(pool.obj.ref, turnover.retired, snapshot.pressure, snapshot.now)
    turnover = preemption.give_way(builder, snapshot, pool, turnover, members)
    if free is not None and pool.spec is not None and (turnover.new or builder.granted[uid]):
        builder.ceilings.append(Ceiling(replicas_scope(uid), Amount(sandboxes=pool.spec.max_replicas or 0)))
    builder.warm += ready_ones(pool, members)
    if snapshot.fleet.shares_store:
        _offer(builder, pool, members)
    leaving_uids = {member.uid for member in turnover.retired}
    busy_uids = snapshot.in_flight | {group.ref.uid for group in builder.groups}
    builder.instances = [instance for instance in builder.instances if instance.uid not in leaving_uids - busy_uids]
    retired = [member for member in turnover.retired if member.uid not in busy_uids]
    builder.instances += (*retired, *turnover.new)
    builder.retirements += retirements(
        pool, members, retired, is_crowded=is_crowded or bool(pressure_message), now=snapshot.now
    )
    status = {**turnover.status, "host": snapshot.fleet.host}
    if free is not None and builder.queued[uid]:  # warm members on other hosts have to give way, too
        status[WAITING] = builder.queued[uid]
    if status != pool.obj.status:
        builder.statuses.append(StatusWrite(pool.obj.ref, status))
    if turnover.until is not None:
        builder.wakes.append(turnover.until)
    if pool.obj.deleted_at is not None and not members and not retiring and FINALIZER in pool.obj.finalizers:
        builder.finalized.append(pool.obj.ref)


def _warm_members(builder: PlanBuilder, pool: Pool, instances: Iterable[Instance]) -> list[Member]:
    """Return the state of the pool's warm members, by the decisions of this pass."""
    snapshot = builder.snapshot
    policy = builder.policy
    memo = builder.memo
    decided = {instance.uid: instance for instance in builder.instances}
    members = []
    for stored in instances:
        if stored.role != WARM:
            continue
        sandbox = memo.member(pool, stored)
        rendered, _ = rendered_with(sandbox, policy, memo, stored.state)
        instance = decided.get(stored.uid, stored)
        name = rendered.config.name if rendered else container_name(sandbox.obj.name, stored.uid)
        container = next(iter(own_containers(snapshot, stored.uid, name, instance.state)), None)
        hibernates = snapshot.hibernation.available
        member = member_of(pool, instance, container, rendered, snapshot.now, hibernates=hibernates)
        shortage = builder.shortages.get(stored.uid)
        members.append(replace(member, trouble=f"QuotaExceeded: {shortage}") if shortage else member)
    return members


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
    decided = {instance.uid: instance for instance in builder.instances}
    for member in members:
        now = decided.get(member.instance.uid, member.instance)
        new_key = key if member.ready and pool.obj.deleted_at is None else ""
        free = now.uid not in builder.snapshot.in_flight
        if free and now.role == WARM and now.state.ready_key != new_key:
            decided[now.uid] = replace(now, state=replace(now.state, ready_key=new_key))
    builder.instances = list(decided.values())
