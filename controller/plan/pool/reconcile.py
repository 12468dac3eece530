"""Reconciliation of the pools, after their members: members to add and to retire, statuses and figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
from controller.plan.base.memo import JudgedMember
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.pool import preemption, preload
from controller.plan.pool.claim_candidates import ready_key
from controller.plan.pool.sandboxpool import (
    WAITING_SANDBOXES_FIELD,
    Member,
    PoolCount,
    Turnover,
    claimable_members,
    member_of,
    plan_turnover,
    replicas,
    retirements,
)
from controller.plan.sandbox.object_context import own_containers, rendered_with
from controller.policy.quota_ledger import HOST
from controller.policy.sandbox import admit_with


def reconcile_pools(builder: PlanBuilder) -> None:
    """Reconcile all pools; the first to give way to pending sandboxes come first."""
    for pool in preemption.in_order(builder.snapshot.desired.pools.values()):
        reconcile_pool(builder, pool)


def reconcile_pool(builder: PlanBuilder, pool: Pool) -> None:
    """Add what one pool needs, given the decisions for its members.

    On one of several hosts, `pool` may be this host's part of a whole pool. Its members and the sandboxes claimed from
    it are counted under the uid of the whole one, whose `maxReplicas` holds over all hosts.
    """
    snapshot = builder.snapshot
    if snapshot.observed.blind:  # nothing is known of the members: what is stored stays, its status too
        return
    index = index_of(snapshot.instances)
    whole_pool_uid = whole_uid(pool.obj)
    # Warm and retired ones; the uid of `pool` is the part's.
    instances = [snapshot.instances[member_uid] for member_uid in index.members.get(pool.obj.uid, ())]
    warm_members = _warm_members(builder, pool, instances)
    being_removed = sum(instance.role == RETIRED for instance in instances)
    # Of this host alone, as all instances here: warm members, those being removed, and claimed sandboxes, whose records
    # go on naming the pool that they came from.
    local_count = index.counts_by_whole_pool.get(whole_pool_uid, 0)
    claimed = local_count - len(warm_members) - being_removed
    pressure_message = snapshot.host.pressure.message()
    # Only the turnover goes by these bounds; priority, image and names are those of the pool itself.
    pool_for_turnover, places = _bounded_by_whole(builder, pool)
    if cordon.is_drained(snapshot.fleet):
        pool_for_turnover = _without_warm_members(pool_for_turnover)
    missing_image = ""
    if not local_count and not pressure_message:  # its instances pull the image themselves; under pressure, nothing is
        missing_image = preload.pull_for_pool(builder, pool)
    turnover = plan_turnover(
        pool_for_turnover,
        warm_members,
        PoolCount(
            being_removed=being_removed,
            claimed=claimed,
            # Bounds a pool that has a maxReplicas here. A part has none: `places` counts these sandboxes instead.
            demand=claimed + builder.granted[whole_pool_uid] + builder.queued[whole_pool_uid],
            places_left=places.left if places is not None else None,
        ),
        taken_uids=snapshot.instances.keys(),
        now=snapshot.now,
        pressure_message=pressure_message,
        missing_image=missing_image,
        host=snapshot.fleet.host,
    )
    turnover = preemption.give_way(builder, snapshot.instances, pool, turnover, warm_members)
    # A cold start with poolPolicy Require takes a place, too.
    if places is not None and (turnover.new or builder.granted[whole_pool_uid]):
        # Other hosts may add members at the same time: the store checks the maximum once more as it writes.
        builder.ceilings.append(Ceiling(replicas_scope(whole_pool_uid), Amount(sandboxes=places.maximum)))
    # With those that this pass retires: they were claimable until now, and a figure says how soon members become so.
    builder.claimable += claimable_members(pool, warm_members)
    if snapshot.fleet.shares_store:
        # The turnover then replaces the records of those that it retires: they are offered to nobody.
        _offer_to_other_hosts(builder, pool, warm_members)
    _add_turnover(builder, pool, warm_members, turnover)
    _write_status(builder, pool, turnover, is_part=places is not None)
    if turnover.next_expiry is not None:
        builder.wakes.append(turnover.next_expiry)
    # Sandboxes claimed from it are objects of their own, and outlive it.
    if pool.obj.deleted_at is not None and not instances and FINALIZER in pool.obj.finalizers:
        builder.finalized.append(pool.obj.ref)


def _write_status(builder: PlanBuilder, pool: Pool, turnover: Turnover, *, is_part: bool) -> None:
    """Add the pool's status to the plan if it changed."""
    status = {**turnover.status, "host": builder.snapshot.fleet.host}
    queued = builder.queued[whole_uid(pool.obj)]
    if is_part and queued:  # warm members on other hosts have to give way, too
        status[WAITING_SANDBOXES_FIELD] = queued
    if status != pool.obj.status:
        builder.statuses.append(StatusWrite(pool.obj.ref, status))


def _add_turnover(builder: PlanBuilder, pool: Pool, members: Sequence[Member], turnover: Turnover) -> None:
    """Add the records of new members and of those to retire, and the reasons of the latter.

    A member with an action under way, or planned in this pass, is left to a later pass: its record says what that
    action is about.
    """
    snapshot = builder.snapshot
    busy_uids = snapshot.progress.in_flight | {group.ref.uid for group in builder.groups}
    to_retire = [member for member in turnover.to_retire if member.uid not in busy_uids]
    retired_uids = {member.uid for member in to_retire}
    builder.events += pressure.retirement_events(pool.obj.ref, to_retire, snapshot.host.pressure, snapshot.now)
    # In place of the records that this pass decided for them as warm members.
    builder.instances = [instance for instance in builder.instances if instance.uid not in retired_uids]
    builder.instances += (*to_retire, *turnover.new)
    builder.retirements += retirements(
        pool,
        members,
        to_retire,
        needs_room=_has_pending_sandboxes(builder, pool) or bool(snapshot.host.pressure.message()),
        now=snapshot.now,
    )


def _has_pending_sandboxes(builder: PlanBuilder, pool: Pool) -> bool:
    """Return True if something waits for capacity in the pool's namespace, or on the host."""
    return builder.ledger is not None and not {pool.obj.namespace, HOST}.isdisjoint(builder.ledger.pending_weights)


def _warm_members(builder: PlanBuilder, pool: Pool, instances: Iterable[Instance]) -> list[Member]:
    """Return the state of the pool's warm members, by the decisions of this pass."""
    records = {instance.uid: instance for instance in builder.instances}
    members = []
    for stored in instances:
        if stored.role != WARM:
            continue
        member = _judge(builder, pool, stored, records.get(stored.uid, stored))
        shortage = builder.shortages.get(stored.uid)
        members.append(replace(member, trouble=f"QuotaExceeded: {shortage}") if shortage else member)
    return members


def _judge(builder: PlanBuilder, pool: Pool, stored: Instance, instance: Instance) -> Member:
    """Return the state of a warm member with this record; that of an earlier pass if nothing about it changed."""
    snapshot, memo, uid = builder.snapshot, builder.memo, stored.uid
    sandbox, containers = memo.member(pool, stored), snapshot.observed.containers.get(uid)
    hibernates = snapshot.host.hibernation.available
    is_young = pool.spec is None or snapshot.now < instance.created_at + pool.spec.max_age_seconds
    judged = memo.judged.get(uid)
    if (
        judged is not None
        and is_young
        and judged.sandbox is sandbox
        and judged.instance is instance
        and judged.containers is containers
        and judged.hibernates == hibernates
    ):
        former: Member = judged.state
        return former
    rendered, _ = rendered_with(sandbox, builder.policy, memo, stored.state)
    name = rendered.config.name if rendered else container_name(sandbox.obj.name, uid)
    container = next(iter(own_containers(snapshot.observed, uid, name, instance.state)), None)
    member = member_of(pool, instance, container, rendered, snapshot.now, hibernates=hibernates)
    if is_young:
        memo.judged[uid] = JudgedMember(
            sandbox=sandbox, instance=instance, containers=containers, hibernates=hibernates, state=member
        )
    return member


@dataclass(frozen=True, slots=True)
class _Places:
    """Places of a whole pool over all hosts: its `maxReplicas`, and what that still leaves."""

    maximum: int
    left: int


def _bounded_by_whole(builder: PlanBuilder, pool: Pool) -> tuple[Pool, _Places | None]:
    """Return the pool as this host is to keep it, and the places of its whole pool.

    None: it is no part of a pool with a maximum over several hosts, and its own `maxReplicas` holds. Of a part, that
    maximum takes no warm member away: its `warmReplicas` do, and sandboxes here that wait for a place.
    """
    uid, spec = whole_uid(pool.obj), pool.spec
    if uid == pool.obj.uid or spec is None or spec.max_replicas is None:
        return pool, None
    warm = max(0, spec.warm_replicas - builder.queued[uid])
    count = replicas(builder.snapshot.fleet, builder.snapshot.instances, uid)
    places = _Places(
        maximum=spec.max_replicas, left=spec.max_replicas - count - builder.granted[uid] - builder.queued[uid]
    )
    return replace(pool, spec=spec.model_copy(update={"max_replicas": None, "warm_replicas": warm})), places


def _without_warm_members(pool: Pool) -> Pool:
    """Return the pool as one that keeps no member warm: its host is being emptied."""
    return replace(pool, spec=pool.spec.model_copy(update={"warm_replicas": 0})) if pool.spec is not None else pool


def _offer_to_other_hosts(builder: PlanBuilder, pool: Pool, members: Sequence[Member]) -> None:
    """Record which members the daemons of other hosts may claim: those that are ready, by what they are."""
    spec = member_spec(pool)
    if spec is None or pool.template is None or admit_with(spec, pool.template, builder.policy):
        return
    key = ready_key(spec, pool.template, pool.obj.namespace, builder.policy)
    records = {instance.uid: instance for instance in builder.instances}
    for member in members:
        record = records.get(member.instance.uid, member.instance)
        new_key = key if member.ready and pool.obj.deleted_at is None else ""
        is_idle = record.uid not in builder.snapshot.progress.in_flight
        if is_idle and record.role == WARM and record.state.claim.ready_key != new_key:
            records[record.uid] = replace(
                record, state=replace(record.state, claim=replace(record.state.claim, ready_key=new_key))
            )
    builder.instances = list(records.values())
