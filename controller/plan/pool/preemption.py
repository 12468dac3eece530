"""Preemption: warm members give way to pending sandboxes, and to members of pools of higher priority.

One at a time, from the pool of the lowest priority, the youngest member first. None is preempted while one that is
leaving still holds its capacity: that may be all that is needed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.kinds.planning.instance_record import RETIRED
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.plan.base.instance_index import index_of
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.pool.sandboxpool import Member, Turnover


def in_order(pools: Iterable[Pool]) -> list[Pool]:
    """Return the pools in the order in which they give way."""
    return sorted(pools, key=lambda pool: (pool.spec.priority if pool.spec else 0, pool.obj.namespace, pool.obj.name))


def give_way(
    builder: PlanBuilder, snapshot: Snapshot, pool: Pool, turnover: Turnover, members: Sequence[Member]
) -> Turnover:
    """Return the pool's turnover in view of pending objects: no new members, and perhaps one member less."""
    scopes = _pools_without_room(builder, pool)
    if not scopes:
        return turnover
    leaving_uids = {member.uid for member in turnover.retired}
    staying = [
        member.instance
        for member in members
        if member.instance.uid not in leaving_uids and member.instance.reserves.pids
    ]
    all_members = (snapshot.instances[uid] for uid in index_of(snapshot.instances).all_members())
    leaving_members = [member for member in all_members if member.role == RETIRED and member.reserves.pids]
    on_its_way = any(member.namespace in scopes or "" in scopes for member in (*leaving_members, *turnover.retired))
    if not staying or on_its_way or builder.gave & scopes:
        return replace(turnover, new=())
    builder.gave |= scopes
    youngest = max(staying, key=lambda member: (member.created_at, member.uid))
    return replace(turnover, new=(), retired=(*turnover.retired, replace(youngest, role=RETIRED)))


def _pools_without_room(builder: PlanBuilder, pool: Pool) -> set[str]:
    """Return the scopes of pending objects that this pool gives way to: its namespace, the host ("")."""
    waiting = builder.ledger.crowded if builder.ledger is not None else {}
    mine = pool.spec.priority if pool.spec else -math.inf
    return {scope for scope in (pool.obj.namespace, "") if waiting.get(scope, -math.inf) > mine}
