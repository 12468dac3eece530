"""Preemption: warm members give way to pending sandboxes, and to members of pools of higher priority.

One at a time, from the pool of the lowest priority, the youngest member first. None is preempted while one that is
leaving still holds its capacity: that may be all that is needed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.kinds.planning.instance_record import RETIRED, Instance
from controller.kinds.planning.snapshot import Pool
from controller.plan.base.instance_index import index_of
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.pool.sandboxpool import Member, Turnover
from controller.policy.quota_ledger import HOST


def in_order(pools: Iterable[Pool]) -> list[Pool]:
    """Return the pools in the order in which they give way."""
    return sorted(pools, key=lambda pool: (pool.spec.priority if pool.spec else 0, pool.obj.namespace, pool.obj.name))


def give_way(
    builder: PlanBuilder,
    instances: Mapping[str, Instance],
    pool: Pool,
    turnover: Turnover,
    members: Sequence[Member],
) -> Turnover:
    """Return the pool's turnover in view of pending objects: no new members, and perhaps one member less."""
    scopes = _scopes_to_yield_to(builder, pool)
    if not scopes:
        return turnover
    leaving_uids = {member.uid for member in turnover.to_retire}
    staying = [
        member.instance
        for member in members
        if member.instance.uid not in leaving_uids and member.instance.reserves.pids
    ]
    all_members = (instances[uid] for uid in index_of(instances).all_members())
    leaving_members = [member for member in all_members if member.role == RETIRED and member.reserves.pids]
    # What is being removed may be all that is needed: wait for it.
    is_room_coming = any(
        member.namespace in scopes or HOST in scopes for member in (*leaving_members, *turnover.to_retire)
    )
    if not staying or is_room_coming or builder.gave_way_in & scopes:
        return replace(turnover, new=())
    builder.gave_way_in |= scopes
    youngest = max(staying, key=lambda member: (member.created_at, member.uid))
    return replace(turnover, new=(), to_retire=(*turnover.to_retire, replace(youngest, role=RETIRED)))


def _scopes_to_yield_to(builder: PlanBuilder, pool: Pool) -> set[str]:
    """Return the scopes of pending objects that this pool gives way to: its namespace, the host ("")."""
    pending_weights = builder.ledger.pending_weights if builder.ledger is not None else {}
    priority = pool.spec.priority if pool.spec else -math.inf
    return {scope for scope in (pool.obj.namespace, HOST) if pending_weights.get(scope, -math.inf) > priority}
