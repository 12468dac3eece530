"""Starts and claims: how a sandbox is launched (Warm or Cold), and what is deferred during a burst of claims.

During a burst, claimed containers are renamed later, a few at a time, and pools are refilled once half of their members
are gone, by one worker instead of all: an engine that starts containers is slow for those that only have to be handed
over.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from controller.kinds.common.tracked_map import changed_keys
from controller.kinds.planning.action import CreateContainer, RenameContainer
from controller.kinds.planning.instance_record import WARM, Instance
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.plan.base.instance_index import index_of
from controller.plan.base.memo import Memo
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.reasons import EXHAUSTED, SHARED
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.pool import claim_candidates
from controller.plan.pool import sandboxpool as pools
from controller.plan.pool.sandboxpool import sharing

# Claims come in bursts: for so long after one, those that follow go first.
BURST_SECONDS = 0.2
# Renames at once: nobody waits for one, and those of a burst of claims come together, and would delay later claims.
# There are as many workers for them, so that none waits in flight.
MOST_RENAMES, _NEXT_RENAMES_SECONDS = 2, 0.05
# Until a deferred rename is decided again. While claims keep coming, each such decision is in vain.
_RENAME_SECONDS = 1.0
# A sandbox that is older is renamed while others are claimed, too: they may keep coming.
_LATEST_RENAME_SECONDS = 10.0


def limit_starts(builder: PlanBuilder, snapshot: Snapshot, members: Mapping[str, Sandbox]) -> None:
    """Set how many members may be started in this pass, and wake when the burst is over."""
    builder.claiming = set(index_of(snapshot.instances).claiming)
    until = _until(snapshot, builder.memo) if members else None
    if until is None:
        return
    missing = {uid for uid in members if _is_to_start(snapshot.instances.get(uid))}
    builder.starts = 1 if 2 * len(missing) >= len(members) and not missing & snapshot.progress.in_flight else 0
    builder.wakes.append(until)


def may_start(builder: PlanBuilder, instance: Instance | None) -> bool:
    """Return True if a container may be created for it now; a member's takes one of the pass's starts."""
    if builder.starts is None or instance is None or instance.role != WARM:
        return True
    if not builder.starts:
        return False
    builder.starts -= 1
    return True


def defer_renames(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision, without its rename while the limits of other claims are not in force yet.

    Nor while others are renamed: nothing else is planned for an object whose action waits for a worker.
    """
    if decision.state.claim.launch != "Warm" or not decision.actions:
        return decision
    if not all(isinstance(action, RenameContainer) for action in decision.actions):
        return decision
    # A timer, not a wait: until then it is not decided in each pass anew. All that are due meanwhile share one.
    due = float(math.ceil(context.now + _RENAME_SECONDS))
    is_late = context.now >= context.obj.created_at + _LATEST_RENAME_SECONDS
    if is_late or not builder.claiming - {context.obj.uid}:
        if builder.renames is None:
            builder.renames = _renaming(builder.snapshot)
        builder.renames += 1
        if builder.renames <= MOST_RENAMES:
            return decision
        due += ((builder.renames - 1) // MOST_RENAMES - 1) * _NEXT_RENAMES_SECONDS  # so many at a time
    return replace(decision, actions=(), drift=(), timer=due if decision.timer is None else min(decision.timer, due))


def _renaming(snapshot: Snapshot) -> int:
    """Return the number of objects in flight whose container has not its name."""
    observed, instances = snapshot.observed.containers, snapshot.instances
    return sum(
        uid in instances and any(container.name != instances[uid].name for container in observed.get(uid, ()))
        for uid in snapshot.progress.in_flight
    )


def launch(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision | None:
    """Return the decision to create a container with its launch type and reason; other decisions are unchanged.

    The sandbox waits where a pool is required and full. None: its start has to wait for a later pass.
    """
    if not any(isinstance(action, CreateContainer) for action in decision.actions):
        return decision
    snapshot = builder.snapshot
    obj = context.obj
    spec = context.spec
    before = context.state
    if obj.uid not in snapshot.progress.results and not may_start(builder, snapshot.instances.get(obj.uid)):
        return None
    if (
        spec is not None
        and not before.claim.launch
        and (message := sharing(claim_candidates.pools_for(snapshot.desired, obj, spec)))
    ):
        return Decision(before, SHARED, message)
    sandbox = Sandbox(obj, spec)
    if spec is None or spec.pool_policy != "Require" or before.claim.launch:
        return claim_candidates.launch_cold(
            snapshot.desired, sandbox, decision, before, policy=builder.policy, now=snapshot.now
        )
    pool, missing = pools.place(snapshot, sandbox, builder.granted)
    if missing:
        builder.queued[pool] += 1
        return Decision(before, EXHAUSTED, missing)
    builder.granted[pool] += 1
    why = "no member of the pool was ready; started as one of the pool's"
    return replace(
        decision,
        state=replace(decision.state, claim=replace(decision.state.claim, launch="Cold", launch_reason=why, pool=pool)),
    )


def _is_to_start(instance: Instance | None) -> bool:
    return instance is None or (instance.role == WARM and not instance.state.container.id)


def _until(snapshot: Snapshot, memo: Memo) -> float | None:
    """Return the end of the present burst of claims (Unix seconds); None: there is none."""
    latest = 0.0
    for uid in _lately_claimed_uids(snapshot, memo):
        sandbox, instance = snapshot.desired.sandboxes[uid], snapshot.instances[uid]
        if instance.state.claim.is_pending:
            latest = max(latest, snapshot.now + BURST_SECONDS)
        elif snapshot.now - BURST_SECONDS < sandbox.obj.created_at <= snapshot.now:
            latest = max(latest, sandbox.obj.created_at + BURST_SECONDS)
    return latest or None


def _lately_claimed_uids(snapshot: Snapshot, memo: Memo) -> set[str]:
    """Return the claimed sandboxes, without those whose claims were over before the present burst."""
    instances = snapshot.instances
    sandboxes = snapshot.desired.sandboxes
    begin = snapshot.now - BURST_SECONDS
    changed_uids = changed_keys(memo.bursts, instances)
    memo.bursts = instances
    claimed_uids = (
        uid for uid in memo.claimed | changed_uids if uid in instances and instances[uid].state.claim.launch == "Warm"
    )
    memo.claimed = {
        uid
        for uid in claimed_uids
        if uid not in sandboxes or instances[uid].state.claim.is_pending or sandboxes[uid].obj.created_at > begin
    }
    return memo.claimed & sandboxes.keys()
