"""Assignment of the host's GPUs, if the operator lists them: no two sandboxes share a device.

Quotas bound the number of devices. Here the particular ones are chosen and recorded before the container is created. A
stopped sandbox releases its devices; if they are taken when it starts again, it is created again with others. Without a
list the engine chooses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.kinds.planning.action import Action, CreateContainer, StartContainer
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.runtime.container import ContainerConfig
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.policy.sandbox import Rendered

REASON = "GpusInUse"
_AGAIN_SECONDS = 30.0


def has_stale_devices(
    instances: Mapping[str, Instance], uid: str, rendered: Rendered | None, state: InstanceState, listed: Sequence[str]
) -> bool:
    """Return True if a stopped container of that object has devices that it may not be started with.

    `listed` are the devices that the operator lists.
    """
    if not listed or rendered is None or not rendered.config.gpus:
        return False
    requested = rendered.config.gpus_named
    if requested and set(state.container.gpus) != set(requested):
        return True
    free_devices = set(listed) - _devices_of_others(instances, uid)
    return not state.container.gpus or not set(state.container.gpus) <= free_devices


def assign(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with devices for the container that it creates; or a wait, while there are too few."""
    snapshot = builder.snapshot
    listed, uid = snapshot.observed.facts.gpus, context.obj.uid
    if not decision.actions and not listed:
        return decision
    creation = next(
        (action for action in decision.actions if isinstance(action, CreateContainer) and action.uid == uid), None
    )
    # Its spec asks for none any more: what its last container had is free for others.
    if creation is not None and not creation.config.gpus and decision.state.container.gpus:
        return replace(decision, state=replace(decision.state, container=replace(decision.state.container, gpus=())))
    if not listed or context.rendered is None or not context.rendered.config.gpus:
        return decision
    used_devices = _devices_of_others(snapshot.instances, uid) | builder.gpus
    # Its container names its devices for good: none of them may be another's when it starts.
    if creation is None:
        starts = any(isinstance(action, StartContainer) and action.uid == uid for action in decision.actions)
        clash = starts and not used_devices.isdisjoint(decision.state.container.gpus)
        return _wait(context, "its GPUs were just given to another sandbox", context.now) if clash else decision
    requested = creation.config.gpus_named
    free = [device for device in listed if device not in used_devices and (not requested or device in requested)]
    former = [device for device in free if device in context.state.container.gpus]
    chosen = (*former, *(device for device in free if device not in former))[: creation.config.gpus]
    if len(chosen) < creation.config.gpus:
        message = _too_few(creation.config, free, len(listed))
        return _wait(context, message, context.now + _AGAIN_SECONDS)
    builder.gpus |= set(chosen)
    actions = tuple(_with(action, chosen) if action is creation else action for action in decision.actions)
    return replace(
        decision,
        actions=actions,
        state=replace(decision.state, container=replace(decision.state.container, gpus=tuple(sorted(chosen)))),
    )


def _too_few(config: ContainerConfig, free: Sequence[str], listed: int) -> str:
    if config.gpus_named:
        used_devices = ", ".join(device for device in config.gpus_named if device not in free)
        return f"GPU {used_devices} is used by another sandbox, or no longer listed by the operator"
    return f"{config.gpus} GPUs asked, {len(free)} of the {listed} that the operator lists are free"


def _with(action: Action, chosen: tuple[str, ...]) -> Action:
    assert isinstance(action, CreateContainer)
    return replace(action, config=replace(action.config, gpu_ids=tuple(sorted(chosen))))


def _wait(context: ReconcileContext, message: str, until: float) -> Decision:
    return Decision(context.state, REASON, message, until=until)


def _devices_of_others(instances: Mapping[str, Instance], uid: str) -> set[str]:
    """Return the devices that all other objects hold now."""
    return {
        device
        for other_uid, instance in instances.items()
        if other_uid != uid and instance.reserves.gpus
        for device in instance.state.container.gpus
    }
