"""Queue of hibernated sandboxes that are asked for: few are woken at once, and a pass looks at as many.

To decide on every one of them in every pass would cost more than the wakes, and the daemon has others to serve.
"""

from controller.kinds.meta import stored_condition
from controller.kinds.observed.observed import State
from controller.kinds.planning.snapshot import Sandbox
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.wake_slots import wake_slots
from controller.plan.capacity.waiting import WAKE_QUEUED


def is_skipped(builder: PlanBuilder, sandbox: Sandbox) -> bool:
    """Return True if a sandbox of the queue is not decided in this pass, since no other one may be woken now."""
    snapshot, obj = builder.snapshot, sandbox.obj
    instance = snapshot.instances.get(obj.uid)
    record = instance.state.memory.hibernation if instance is not None else None
    if record is None or record.phase != "Hibernated":
        return False
    if obj.deleted_at is not None or obj.uid in snapshot.progress.results:
        return False
    if all(container.state is not State.PAUSED for container in snapshot.observed.containers.get(obj.uid, ())):
        return False  # it ended, or somebody else woke it
    is_news = obj.status.get("observedGeneration") != obj.generation
    if is_news or stored_condition(obj, "Scheduled").get("reason") != WAKE_QUEUED:
        return False
    if builder.wake_candidates is None:
        builder.wake_candidates = wake_slots(snapshot).free
    if builder.wake_candidates:
        builder.wake_candidates -= 1
        return False
    builder.skipped_wakes.add(obj.uid)
    return True


def look_again(builder: PlanBuilder) -> None:
    """Plan again for those that were skipped."""
    if builder.skipped_wakes:
        slots = builder.wake_slots or wake_slots(builder.snapshot)
        builder.wakes.append(slots.look_at(builder.snapshot.now))
