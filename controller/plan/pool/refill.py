"""What waits while claims are coming in: pools are refilled by one worker instead of all, boxes are renamed later.

An engine that starts containers has little left for those whose boxes run already and only want to be handed over.
"""

from collections.abc import Mapping
from dataclasses import replace

from controller.kinds.planning.action import RenameContainer
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.plan.common.plan_builder import Draft
from controller.plan.common.reconcile_context import Case, Decision
from controller.plan.pool.sandboxpool import WARM

# Claims come in bursts: for so long after one, those that follow go first.
BURST_SECONDS = 0.2


def hold_back(draft: Draft, snapshot: Snapshot, members: Mapping[str, Sandbox]) -> None:
    """Note how many members may be started in this pass, and when to look again."""
    draft.claiming = {uid for uid, each in snapshot.instances.items() if each.memory.claiming}
    until = _until(snapshot) if members else None
    if until is None:
        return
    started = sum(_is_to_start(snapshot.instances[uid]) for uid in snapshot.in_flight & members.keys())
    draft.starts = max(0, 1 - started)
    draft.wakes.append(until)


def may_start(draft: Draft, instance: Instance | None) -> bool:
    """Whether a container may be made for it now; that of a member takes one of the pass's starts."""
    if draft.starts is None or instance is None or instance.role != WARM:
        return True
    if not draft.starts:
        return False
    draft.starts -= 1
    return True


def later(draft: Draft, case: Case, decision: Decision) -> Decision:
    """The decision; without its rename, while the limits of other claims are not in force yet."""
    waits = bool(draft.claiming - {case.obj.uid}) and decision.memory.launch == "Warm"
    if not waits or not decision.actions or not all(isinstance(each, RenameContainer) for each in decision.actions):
        return decision
    return replace(decision, actions=(), drift=(), until=case.now + BURST_SECONDS)


def _is_to_start(instance: Instance) -> bool:
    return instance.role == WARM and not instance.memory.container


def _until(snapshot: Snapshot) -> float | None:
    """Until when claims are thought to be coming in (Unix seconds); None: they are not."""
    latest = 0.0
    for uid, each in snapshot.instances.items():
        sandbox = snapshot.sandboxes.get(uid)
        if sandbox is None or each.memory.launch != "Warm":
            continue
        if each.memory.claiming:
            latest = max(latest, snapshot.now + BURST_SECONDS)
        elif snapshot.now - BURST_SECONDS < sandbox.obj.created_at <= snapshot.now:
            latest = max(latest, sandbox.obj.created_at + BURST_SECONDS)
    return latest or None
