"""Reservations: the resources that each object's record holds, and the resources it asks for beyond them.

A record reserves the larger of what may be in use and what is desired. Growth is reserved before it is carried out;
what shrinks or stops is released once that was observed. Nothing running is stopped for lack of capacity.
A record is an object's seat: an object without a record is not counted and has no container.

An object that cannot start (refused by the engine, image unavailable) holds nothing and has no seat; its record keeps
the reason. While its image is being pulled again it keeps its reservation.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.instance_record import REFUSED, SANDBOX, Instance
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.quota import RESOURCES, Amount
from controller.kinds.runtime.container import Limits
from controller.plan.base.backoff import can_not_start, is_backing_off
from controller.plan.base.claim import Claim
from controller.plan.base.reasons import WITHHELD
from controller.plan.base.reconcile_context import Decision, ReconcileContext, replace_if_changed
from controller.plan.network.networks import share, waits_for_retry
from controller.plan.sandbox import hibernation, idle, mounts
from controller.plan.sandbox.lifecycle import rest_state
from controller.policy.quota_ledger import HOST
from controller.policy.sandbox import NO_LIMITS, volume_bytes

# In these states nothing uses a processor, memory or a pid. In an unknown or transient state anything may.
_STOPPED = (State.CREATED, State.EXITED, State.DEAD)


def claim(context: ReconcileContext, decision: Decision, instance: Instance | None) -> Claim:
    """Return what this object holds and what it asks for in full. A blind pass changes nothing."""
    reserved = instance.reserves if instance else NO_LIMITS
    containers = ((context.container,) if context.container else ()) + context.extra
    seated = (instance is not None and instance.role != REFUSED) or bool(containers)
    if context.blind or decision.reason == "Unreadable":
        return Claim(reserved, reserved, seated=seated, wants_seat=False, beside=share(context, is_to_run=True))
    failure = decision.state.backoff.failure
    has_failed = is_backing_off(failure, context.obj.generation, context.deleting) and can_not_start(failure)
    is_refused = not context.deleting and (context.rendered is None or (has_failed and waits_for_retry(decision)))
    if is_refused and all(container.state is State.CREATED for container in containers):
        return Claim(NO_LIMITS, NO_LIMITS, seated=False, wants_seat=False, beside=share(context, is_to_run=False))
    requested = None if is_refused else _requested_limits(context, decision)
    usage = _in_use(containers, requested or reserved)
    if hibernation.is_frozen(context):
        usage = _while_frozen(containers, usage)
    # What it holds, as far as it still asks for it: a smaller request is released, a larger one has to be admitted.
    retained = _combine(min, requested, reserved) if requested else NO_LIMITS
    total = _combine(max, usage, requested or NO_LIMITS)
    shares = requested.cpu_shares if requested else 0
    base = replace_if_changed(_combine(max, usage, retained), cpu_shares=shares)
    total, base = _with_disk(context, total, base, instance, seated)
    if base.pids and not _has_requested_devices(
        context
    ):  # devices stay with what runs, whatever its spec asks for by now
        base, total = (replace_if_changed(limits, gpus=max(limits.gpus, reserved.gpus)) for limits in (base, total))
    wants_seat = context.rendered is not None and not context.deleting
    beside = share(context, requested is not None or hibernation.is_frozen(context))  # its connections live on
    total = replace_if_changed(total, cpu_shares=shares)
    return Claim(base, total, seated=seated, wants_seat=wants_seat, beside=beside, holds_up=not has_failed)


def _has_requested_devices(context: ReconcileContext) -> bool:
    """Return True if its container was created with the devices that its spec asks for."""
    container, rendered = context.container, context.rendered
    return container is not None and rendered is not None and container.template_hash == rendered.template_hash


def _requested_limits(context: ReconcileContext, decision: Decision) -> Limits | None:
    """Return the limits it is to run with; None if it is not to run."""
    if context.rendered is None or context.spec is None or context.deleting or decision.finished:
        return None
    after = replace_if_changed(context, state=decision.state)
    resting = rest_state(after)
    wakes_to_stop = hibernation.is_frozen(context) and resting is not None and resting.reason in idle.REASONS
    if wakes_to_stop and decision.actions:  # it is suspended after it was hibernated: its memory comes back first
        return context.rendered.config.limits
    if decision.reason in WITHHELD or (resting is not None and not resting.restarts):
        return None
    if hibernation.is_frozen(context) and hibernation.is_to_hibernate(after):
        return None
    return context.rendered.config.limits


def _saved_bytes(state: InstanceState | None) -> int:
    """Return the size of the files in memory that a suspension saved."""
    return state.memory.saved_files.size_bytes if state is not None and state.memory.saved_files is not None else 0


def _with_disk(
    context: ReconcileContext, total: Limits, base: Limits, instance: Instance | None, seated: bool
) -> tuple[Limits, Limits]:
    """Return both limits with disk. Disk goes with the seat: a stopped container keeps its files and volumes."""
    reserved = instance.reserves if instance else NO_LIMITS
    disk_bytes = max(0, reserved.disk_bytes - _saved_bytes(instance.state if instance else None))
    if context.rendered is not None and not context.deleting:
        disk_bytes = context.rendered.config.limits.disk_bytes + volume_bytes(
            mounts.desired_mounts(context, context.rendered)
        )
    reserved_bytes = reserved.disk_bytes - _saved_bytes(instance.state if instance else None)
    retained = min(disk_bytes, max(0, reserved_bytes)) if seated else 0
    saved_bytes = _saved_bytes(context.state)  # on the disk already: counted, and never refused
    disk_bytes, retained = disk_bytes + saved_bytes, retained + saved_bytes
    return replace_if_changed(total, disk_bytes=disk_bytes), replace_if_changed(base, disk_bytes=retained)


def _in_use(containers: Iterable[Container], fallback: Limits) -> Limits:
    """Return what may be in use now. An unreadable limit, or one lifted out-of-band, counts as the desired one."""
    total = NO_LIMITS
    for container in containers:
        if container.state not in _STOPPED:
            limits = container.limits or fallback
            total = Limits(
                total.cpu_millicores + (limits.cpu_millicores or fallback.cpu_millicores),
                total.memory_bytes + (limits.memory_bytes or fallback.memory_bytes),
                total.pids + (limits.pids or fallback.pids),
            )
    return total


def _while_frozen(containers: Iterable[Container], usage: Limits) -> Limits:
    """Return what a hibernated container holds: the memory that was not moved, its processes, and no processor."""
    memories = [container.frozen_memory for container in containers]
    resident = sum(memory.resident_bytes for memory in memories if memory is not None)
    unread = any(memory is None for memory in memories)
    return replace(usage, cpu_millicores=0, memory_bytes=usage.memory_bytes if unread else resident)


def _combine(of: Callable[[int, int], int], first: Limits, second: Limits) -> Limits:
    """Return what `of` makes of each pair of limits; shares of the processor bound nothing, and are the first's."""
    if first is second:  # so of all that are stopped: nothing is in use, and nothing requested
        return first
    return Limits(
        of(first.cpu_millicores, second.cpu_millicores),
        of(first.memory_bytes, second.memory_bytes),
        pids=of(first.pids, second.pids),
        cpu_shares=first.cpu_shares,
        disk_bytes=of(first.disk_bytes, second.disk_bytes),
        gpus=of(first.gpus, second.gpus),
    )


def reserved_amounts(instances: Iterable[Instance]) -> dict[str, Amount]:
    """Return what instances hold, by namespace, and all of them on the host ("")."""
    sums: dict[str, list[int]] = {HOST: [0] * len(RESOURCES)}
    for instance in instances:
        limits = instance.reserves
        for total in (sums[HOST], sums.setdefault(instance.namespace, [0] * len(RESOURCES))):
            total[0] += limits.cpu_millicores
            total[1] += limits.memory_bytes
            total[2] += limits.pids
            total[3] += instance.role == SANDBOX  # a pool's members have no seat before they are claimed
            total[4] += limits.disk_bytes
            total[5] += limits.gpus
    return {namespace: Amount(*total) for namespace, total in sums.items()}


def larger(first: Limits, second: Limits) -> Limits:
    """Return the larger value of each limit; the CPU shares are the second one's."""
    return replace(_combine(max, first, second), cpu_shares=second.cpu_shares)


def smaller(first: Limits, second: Limits) -> Limits:
    """Return the smaller value of each limit; the CPU shares are the first one's."""
    return _combine(min, first, second)
