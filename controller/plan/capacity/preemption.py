"""Preemption: warm members give way to pending sandboxes, and to members of pools of higher priority.

One at a time, from the pool of the lowest priority, the youngest member first. None is preempted while one that is
leaving still holds its capacity: that may be all that is needed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.kinds.planning.instance_record import RETIRED
from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.plan.common.instance_index import index_of
from controller.plan.common.plan_builder import PlanBuilder
from controller.plan.pool.sandboxpool import Member, Turnover


def in_order(pools: Iterable[Pool]) -> list[Pool]:
    """Return the pools in the order in which they give way."""
    return sorted(pools, key=lambda each: (each.spec.priority if each.spec else 0, each.obj.namespace, each.obj.name))


def give_way(
    builder: PlanBuilder, snapshot: Snapshot, pool: Pool, made: Turnover, members: Sequence[Member]
) -> Turnover:
    """Return the pool's turnover in view of pending objects: no new members, and perhaps one member less."""
    crowded = _crowded(builder, pool)
    if not crowded:
        return made
    leaving = {each.uid for each in made.retired}
    left = [each.instance for each in members if each.instance.uid not in leaving and each.instance.reserves.pids]
    all_members = (snapshot.instances[uid] for uid in index_of(snapshot.instances).all_members())
    going = [each for each in all_members if each.role == RETIRED and each.reserves.pids]
    on_its_way = any(each.namespace in crowded or "" in crowded for each in (*going, *made.retired))
    if not left or on_its_way or builder.gave & crowded:
        return replace(made, new=())
    builder.gave |= crowded
    youngest = max(left, key=lambda each: (each.created_at, each.uid))
    return replace(made, new=(), retired=(*made.retired, replace(youngest, role=RETIRED)))


def _crowded(builder: PlanBuilder, pool: Pool) -> set[str]:
    """Return the scopes of pending objects that this pool gives way to: its namespace, the host ("")."""
    waiting = builder.ledger.crowded if builder.ledger is not None else {}
    mine = pool.spec.priority if pool.spec else -math.inf
    return {each for each in (pool.obj.namespace, "") if waiting.get(each, -math.inf) > mine}
