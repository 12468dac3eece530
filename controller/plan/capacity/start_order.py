"""Order of first starts within a namespace: a sandbox waits until those of its `startAfter` are as they should be.

A later start waits for nobody: those that came first may sleep by then, or be deleted, and no start of this one would
bring them back.
"""

from controller.kinds.meta import stored_condition
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import StartCondition
from controller.plan.base.reconcile_context import ReconcileContext
from controller.plan.sandbox.deaths import exit_text


def pauses(snapshot: Snapshot, context: ReconcileContext, reserved: Limits, requested: Limits) -> str:
    """Return the message of a first start that has to wait for others; empty when it need not, or nothing is started.

    One that holds its capacity, or has run before, is started whatever became of the others.
    """
    spec, state = context.spec, context.state
    if spec is None or not spec.start_after or reserved.pids or not requested.pids:
        return ""
    if state.runs.last.container_id or state.runs.last_end is not None:
        return ""
    names = {condition.sandbox for condition in spec.start_after}
    sandboxes = {
        sandbox.obj.name: sandbox
        for sandbox in snapshot.desired.sandboxes.values()
        if sandbox.obj.namespace == context.obj.namespace and sandbox.obj.name in names
    }
    obstacles = (_obstacle(snapshot, condition, sandboxes.get(condition.sandbox)) for condition in spec.start_after)
    return "; ".join(filter(None, obstacles))


def _obstacle(snapshot: Snapshot, condition: StartCondition, sandbox: Sandbox | None) -> str:
    """Return why one condition of a first start is not met yet; "" if it is."""
    name = condition.sandbox
    if sandbox is None and snapshot.fleet.shares_store:  # a snapshot has the sandboxes of its host alone
        return f"it starts after {name}, which is on another host, or not there"
    if sandbox is None or sandbox.obj.deleted_at is not None:
        return f"it starts after {name}, and there is no such sandbox"
    if condition.condition == "Started":
        containers = snapshot.observed.containers.get(sandbox.obj.uid, ())
        started = any(container.started_at for container in containers)
        return "" if started else f"it starts after {name}, which has not been started"
    if condition.condition == "Ready":
        ready = stored_condition(sandbox.obj, "Ready")
        if ready.get("status") == "True":
            return ""
        return f"it starts once {name} is Ready, which it is not ({ready.get('reason') or 'Pending'})"
    instance = snapshot.instances.get(sandbox.obj.uid)
    end = instance.state.runs.last_end if instance is not None and instance.state.runs.finished else None
    if end is None:
        return f"it starts once {name} has succeeded, which has not ended"
    if end.exit_code:
        return f"it starts once {name} has succeeded, which ended with {exit_text(end.exit_code)}"
    return ""
