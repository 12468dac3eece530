"""Disk limits: the DiskQuotaEnforced condition, and the stop of a sandbox that exceeded a soft limit.

A soft limit is measured about every minute and reported at 80 %. Beyond it the sandbox is stopped until its spec
changes, as a Kubernetes node evicts a pod for its ephemeral storage.
"""

from collections.abc import Mapping
from dataclasses import replace

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Observation
from controller.kinds.planning.instance_state import DiskExcess, InstanceState
from controller.kinds.planning.snapshot import DesiredObjects, Measurements, Snapshot
from controller.plan.base.reconcile_context import ALIVE, ReconcileContext
from controller.policy.container.disk import in_memory
from controller.policy.sandbox import disk_limit

TYPE = "DiskQuotaEnforced"
REASON = "DiskLimitExceeded"
_SOFT = "the limit is soft: what is written is measured about every minute, and the sandbox stopped when it is more"


def over_limit(snapshot: Snapshot) -> frozenset[str]:
    """Return the uids of objects that wrote more than their limit; usually none."""
    if not snapshot.measured.layers:
        return frozenset()
    return frozenset(
        uid
        for uid, instance in snapshot.instances.items()
        if instance.reserves.disk_bytes
        for container in snapshot.observed.containers.get(uid, ())
        if container.id in snapshot.measured.layers
        and 0 < limit_of(snapshot.desired, uid) < (snapshot.measured.layers[container.id].used_bytes or 0)
    )


def unmeasured_reasons(observed: Observation, measured: Measurements) -> Mapping[str, str]:
    """Return why the writable layers of objects can't be measured, by uid; usually none."""
    troubles = {id_: layer.trouble for id_, layer in measured.layers.items() if layer.trouble}
    if not troubles:
        return {}
    return {
        container.uid: troubles[container.id]
        for containers in observed.containers.values()
        for container in containers
        if container.id in troubles
    }


def limit_of(desired: DesiredObjects, uid: str) -> int:
    """Return the bytes a sandbox may write in its container; 0: unlimited, or not a sandbox."""
    sandbox = desired.sandboxes.get(uid)
    return disk_limit(sandbox.spec, sandbox.template) if sandbox else 0


def observe(context: ReconcileContext) -> InstanceState:
    """Return the state with the bytes written beyond the limit. A new generation of its spec starts afresh."""
    state = context.state
    if state.lifecycle.disk_excess.written_bytes and not is_exceeded(context):
        state = replace(state, lifecycle=replace(state.lifecycle, disk_excess=DiskExcess()))
    limit = _soft_limit(context)
    running = context.container is not None and context.container.state in ALIVE
    if limit and running and context.written_bytes > limit and not is_exceeded(context):
        state = replace(
            state,
            lifecycle=replace(state.lifecycle, disk_excess=DiskExcess(context.obj.generation, context.written_bytes)),
        )
    return state


def is_exceeded(context: ReconcileContext) -> bool:
    """Return True if it wrote more than its limit in this generation of its spec."""
    generation, written_bytes = context.state.lifecycle.disk_excess
    return bool(written_bytes) and generation == context.obj.generation


def limit_message(context: ReconcileContext) -> str:
    """Return the message of a sandbox beyond its limit."""
    limits = context.rendered.config.limits if context.rendered else None
    limit_text = f" (limits.disk is {format_bytes(limits.disk_bytes)})" if limits and limits.disk_bytes else ""
    usage = format_bytes(context.state.lifecycle.disk_excess.written_bytes)
    return f"it wrote {usage} to disk{limit_text}; it starts again when its spec changes"


def condition(context: ReconcileContext) -> Condition:
    """Return the DiskQuotaEnforced condition."""
    if context.rendered is None or not context.rendered.config.limits.disk_bytes:
        return Condition(TYPE, "Unknown", "NotAsked", "its limits do not include disk")
    config, container = context.rendered.config, context.container
    if in_memory(config):
        return Condition(TYPE, "True", "InMemory", "it can write to memory only, which is limited")
    if not config.storage_bytes and context.unmeasured:
        return Condition(TYPE, "False", "NotMeasured", _not_measured(context.unmeasured))
    if not config.storage_bytes:
        return Condition(TYPE, "False", "Soft", f"{_SOFT} ({_why(context)})")
    if container is None:
        return Condition(TYPE, "Unknown", "NoContainer", "its container will get a size")
    if container.storage_bytes < config.storage_bytes:
        return Condition(TYPE, "False", "NextStart", "its container was made with another size, until its next start")
    return Condition(TYPE, "True", "StorageOption", "the engine holds its writable layer to the limit")


def _soft_limit(context: ReconcileContext) -> int:
    """Return the limit that only this module enforces, bytes; 0: unlimited, or enforced by the engine."""
    if context.rendered is None or context.is_pool_member:
        return 0
    config = context.rendered.config
    is_enforced = in_memory(config) or config.storage_bytes
    return 0 if is_enforced else config.limits.disk_bytes


def _not_measured(trouble: str) -> str:
    return (
        f"what it writes can't be measured now, so it is not stopped at its limit: {trouble}; use a level whose root"
        " file system is read-only, or an engine that holds it to the limit"
    )


def _why(context: ReconcileContext) -> str:
    disk = context.rendered.disk if context.rendered else None
    return disk.message if disk else "not tried yet on this engine"
