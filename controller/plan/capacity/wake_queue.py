"""Queue of hibernated sandboxes that are asked for: few are woken at once, and a pass looks at as many.

To decide on every one of them in every pass would cost more than the wakes, and the daemon has others to serve.
"""

from controller.kinds.meta import stored_condition
from controller.kinds.planning.snapshot import Sandbox
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.capacity.waiting import WAKE_QUEUED
from controller.plan.sandbox import hibernation


def is_skipped(builder: PlanBuilder, sandbox: Sandbox) -> bool:
    """Return True if a sandbox of the queue is not decided in this pass, since no other one may be woken now."""
    snapshot, obj = builder.snapshot, sandbox.obj
    instance = snapshot.instances.get(obj.uid)
    record = instance.state.memory.hibernation if instance is not None else None
    if record is None or record.phase != "Hibernated":
        return False
    if obj.deleted_at is not None or obj.uid in snapshot.progress.results:
        return False
    is_news = obj.status.get("observedGeneration") != obj.generation
    if is_news or stored_condition(obj, "Scheduled").get("reason") != WAKE_QUEUED:
        return False
    if builder.wake_candidates is None:
        limit = hibernation.wakes_at_once(snapshot)
        builder.wake_candidates = max(0, limit - hibernation.count_waking(snapshot))
    if builder.wake_candidates:
        builder.wake_candidates -= 1
        return False
    builder.skipped_wakes.add(obj.uid)
    return True


def look_again(builder: PlanBuilder) -> None:
    """Plan again at once if some were skipped, and none is woken whose end would be the occasion."""
    if builder.skipped_wakes and not (builder.waking or hibernation.count_waking(builder.snapshot)):
        builder.wakes.append(builder.snapshot.now)
