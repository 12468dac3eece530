"""Assignment of the host's GPUs, if the operator lists them: no two sandboxes share a device.

Quotas bound the number of devices. Here the particular ones are chosen and recorded before the container is created. A
stopped sandbox releases its devices; if they are taken when it starts again, it is created again with others. Without a
list the engine chooses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.kinds.planning.action import Action, CreateContainer, StartContainer
from controller.kinds.planning.instance_record import Instance, InstanceState
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.container import ContainerConfig
from controller.plan.common.plan_builder import PlanBuilder
from controller.plan.common.reconcile_context import Decision, ReconcileContext
from controller.policy.sandbox import Rendered

REASON = "GpusInUse"
_AGAIN_SECONDS = 30.0


def stale(snapshot: Snapshot, uid: str, rendered: Rendered | None, memory: InstanceState) -> bool:
    """Return True if a stopped container of that object has devices that it may not be started with."""
    listed = snapshot.observed.facts.gpus
    if not listed or rendered is None or not rendered.config.gpus:
        return False
    named = rendered.config.gpus_named
    if named and set(memory.gpus) != set(named):
        return True
    return not memory.gpus or not set(memory.gpus) <= set(listed) - _others(snapshot.instances, uid)


def assign(builder: PlanBuilder, context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with devices for the container that it creates; or a wait, while there are too few."""
    snapshot = builder.snapshot
    listed, uid = snapshot.observed.facts.gpus, context.obj.uid
    if not decision.actions and not listed:
        return decision
    made = next((each for each in decision.actions if isinstance(each, CreateContainer) and each.uid == uid), None)
    if made is not None and not made.config.gpus and decision.memory.gpus:
        return replace(decision, memory=replace(decision.memory, gpus=()))
    if not listed or context.rendered is None or not context.rendered.config.gpus:
        return decision
    taken = _others(snapshot.instances, uid) | builder.gpus
    if made is None:
        starts = any(isinstance(each, StartContainer) and each.uid == uid for each in decision.actions)
        clash = starts and not taken.isdisjoint(decision.memory.gpus)
        return _wait(context, "its GPUs were just given to another sandbox", context.now) if clash else decision
    named = made.config.gpus_named
    free = [each for each in listed if each not in taken and (not named or each in named)]
    own = [each for each in free if each in context.memory.gpus]
    chosen = (*own, *(each for each in free if each not in own))[: made.config.gpus]
    if len(chosen) < made.config.gpus:
        message = _too_few(made.config, free, len(listed))
        return _wait(context, message, context.now + _AGAIN_SECONDS)
    builder.gpus |= set(chosen)
    actions = tuple(_with(each, chosen) if each is made else each for each in decision.actions)
    return replace(decision, actions=actions, memory=replace(decision.memory, gpus=tuple(sorted(chosen))))


def _too_few(config: ContainerConfig, free: Sequence[str], listed: int) -> str:
    if config.gpus_named:
        taken = ", ".join(each for each in config.gpus_named if each not in free)
        return f"GPU {taken} is used by another sandbox, or no longer listed by the operator"
    return f"{config.gpus} GPUs asked, {len(free)} of the {listed} that the operator lists are free"


def _with(action: Action, chosen: tuple[str, ...]) -> Action:
    assert isinstance(action, CreateContainer)
    return replace(action, config=replace(action.config, gpu_ids=tuple(sorted(chosen))))


def _wait(context: ReconcileContext, message: str, until: float) -> Decision:
    return Decision(context.memory, REASON, message, until=until)


def _others(instances: Mapping[str, Instance], uid: str) -> set[str]:
    """Return the devices that all other objects hold now."""
    return {
        device
        for other, each in instances.items()
        if other != uid and each.reserves.gpus
        for device in each.memory.gpus
    }
