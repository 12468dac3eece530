"""Warm members give way to those that wait for room: to any sandbox, and to members of pools of higher priority.

One at a time, of the pool of the lowest priority, the youngest member first; and none while the room of one that goes
is not free yet: it may be all that is needed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.kinds.planning.snapshot import Pool, Snapshot
from controller.plan.common.plan_builder import PlanBuilder
from controller.plan.pool.sandboxpool import RETIRED, Member, Turnover


def in_order(pools: Iterable[Pool]) -> list[Pool]:
    """Those that give way first, first."""
    return sorted(pools, key=lambda each: (each.spec.priority if each.spec else 0, each.obj.namespace, each.obj.name))


def give_way(
    builder: PlanBuilder, snapshot: Snapshot, pool: Pool, made: Turnover, members: Sequence[Member]
) -> Turnover:
    """What the pool does, in view of those that wait: no new members, and perhaps one fewer."""
    crowded = _crowded(builder, pool)
    if not crowded:
        return made
    leaving = {each.uid for each in made.retired}
    left = [each.instance for each in members if each.instance.uid not in leaving and each.instance.reserves.pids]
    going = [each for each in snapshot.instances.values() if each.role == RETIRED and each.reserves.pids]
    on_its_way = any(each.namespace in crowded or "" in crowded for each in (*going, *made.retired))
    if not left or on_its_way or builder.gave & crowded:
        return replace(made, new=())
    builder.gave |= crowded
    youngest = max(left, key=lambda each: (each.created_at, each.uid))
    return replace(made, new=(), retired=(*made.retired, replace(youngest, role=RETIRED)))


def _crowded(builder: PlanBuilder, pool: Pool) -> set[str]:
    """Where somebody waits that this pool gives way to: its namespace, the host ("")."""
    waiting = builder.ledger.crowded if builder.ledger is not None else {}
    mine = pool.spec.priority if pool.spec else -math.inf
    return {each for each in (pool.obj.namespace, "") if waiting.get(each, -math.inf) > mine}
