"""Members of pools in the form of sandboxes."""

from controller.kinds.meta import StoredObject
from controller.kinds.planning.instance_record import RETIRED, Instance
from controller.kinds.planning.snapshot import Pool, Sandbox
from controller.kinds.sandbox import FINALIZER, Lifecycle, SandboxSpec


def member_spec(pool: Pool) -> SandboxSpec | None:
    """Return a member's spec: a sandbox of the template with nothing of its own. None: unreadable."""
    if pool.spec is None:
        return None
    lifecycle = Lifecycle(
        shutdown_grace_period_seconds=pool.spec.shutdown_grace_period_seconds,
        startup_deadline_seconds=pool.spec.startup_deadline_seconds,
    )
    return SandboxSpec(
        template_ref=pool.spec.template_ref,
        lifecycle=lifecycle,
        priority=pool.spec.priority,
        run_state=pool.spec.warm_state,
    )


def as_sandbox(pool: Pool, instance: Instance) -> Sandbox:
    """Return a member in the form of a sandbox. A retired one looks like a sandbox that is being deleted."""
    obj = StoredObject(
        kind="SandboxPool",
        namespace=instance.namespace,
        name=instance.state.container.hostname,
        uid=instance.uid,
        spec={},
        finalizers=(FINALIZER,),
        created_at=instance.created_at,
        deleted_at=instance.created_at if instance.role == RETIRED else None,
    )
    return Sandbox(obj, member_spec(pool), pool.template, pool.broken)
