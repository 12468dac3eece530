"""The guarded bridge of a sandbox with Internet access: created before its container, removed after it.

Called by networks.py with the decision for the sandbox itself. Without the guard nothing is started on it: nothing else
confines this network.
"""

from dataclasses import replace

from controller.kinds.common.labels import container_labels
from controller.kinds.meta import Condition
from controller.kinds.planning.action import Action, ConnectNetwork, CreateContainer, StartContainer
from controller.kinds.runtime.network import EnsureNetwork, Network, RemoveNetwork
from controller.plan.common.reconcile_context import ALIVE, Decision, ReconcileContext, replace_if_changed
from controller.plan.network import egress
from controller.policy.network.bridge import Open

ROLE = "public"
_RETRY_SECONDS = 1.0


def reconcile_bridge(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with the actions on the bridge."""
    wanted, found = _wanted(context), context.network.bridges
    if wanted is None and not found:
        return _forgotten(context, decision)
    if context.blind or egress.is_held_up(decision) or decision.reason == "Unreadable":
        return decision
    if context.deleting or wanted is None:
        return decision if context.rendered is None and not context.deleting else _cleared(context, decision, found)
    decision = _cleared(context, decision, tuple(each for each in found if each.name != wanted.network))
    joins = [at for at, each in enumerate(decision.actions) if _joins(each, wanted)]
    if not joins:
        return decision
    first = decision.actions[joins[0]]
    if not isinstance(first, ConnectNetwork) and (lacking := egress.lacking(context)) is not None:
        return Decision(context.memory if isinstance(first, CreateContainer) else decision.memory, *lacking)
    if not context.network.subnet:
        return decision
    memory = replace_if_changed(decision.memory, subnet=context.network.subnet)
    if not _differs(context, wanted):
        return replace(decision, memory=memory)
    before, after = decision.actions[: joins[0]], decision.actions[joins[0] :]
    return replace(decision, memory=memory, actions=(*before, _ensure(context, wanted), *after))


def unplugged(context: ReconcileContext) -> bool:
    """Return True if a stopped container cannot start because its network is not the one that it was created on."""
    wanted = _wanted(context)
    return egress.unplugged(context) if wanted is None else _differs(context, wanted)


def ready(context: ReconcileContext) -> Condition | None:
    """Return the NetworkReady condition; None: it has no bridge of this kind."""
    wanted = _wanted(context)
    if wanted is None:
        return None
    if context.blind:
        return Condition("NetworkReady", "Unknown", "EngineUnreachable", context.blind)
    lacking, box = egress.lacking(context), context.container
    up = box is not None and box.state in ALIVE and box.networks == (wanted.network,)
    if up and context.unconfined:
        return Condition("NetworkReady", "False", egress.UNGUARDED, context.unconfined)
    if up and context.network.unguarded:
        message = f"it runs on, though the guard's state is unknown: {context.network.unguarded}"
        return Condition("NetworkReady", "Unknown", egress.UNGUARDED, message)
    if up and (cut := egress.gone(context) or egress.cut_off(_existing(context, wanted))) is not None:
        return cut
    if up:
        message = "the Internet and the local network" if wanted.local else "the Internet, and nothing local"
        return Condition("NetworkReady", "True", "Local" if wanted.local else "Public", f"reaches {message}")
    if box is not None and box.state in ALIVE:
        return Condition("NetworkReady", "False", "NotUp", f"it is not on {wanted.network} alone")
    if lacking is not None:
        return Condition("NetworkReady", "False", *lacking)
    return Condition("NetworkReady", "False", "NotRunning", "the sandbox does not run")


def _wanted(context: ReconcileContext) -> Open | None:
    return context.rendered.open if context.rendered else None


def _joins(action: Action, wanted: Open) -> bool:
    """Return True if the action attaches something to the bridge."""
    if isinstance(action, ConnectNetwork):
        return action.network == wanted.network
    return isinstance(action, CreateContainer | StartContainer)


def _differs(context: ReconcileContext, wanted: Open) -> bool:
    found = _existing(context, wanted)
    return found is None or not found.is_linked or found.config_hash != wanted.bridge(context.network.subnet).hash()


def _existing(context: ReconcileContext, wanted: Open) -> Network | None:
    return next((each for each in context.network.bridges if each.name == wanted.network), None)


def _ensure(context: ReconcileContext, wanted: Open) -> EnsureNetwork:
    config = wanted.bridge(context.network.subnet)
    labels = container_labels(
        instance=context.instance_id,
        uid=context.obj.uid,
        namespace=context.obj.namespace,
        name=context.obj.name,
        role=ROLE,
        generation=context.obj.generation,
        config_hash=config.hash(),
        template_hash="",
    )
    there = any(each.name == wanted.network for each in context.network.bridges)
    why = "its bridge differs from the desired one" if there else "found no bridge of its own"
    return EnsureNetwork(context.obj.uid, config, labels, why)


def _forgotten(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision without the recorded subnet of a bridge that does not exist and is no longer desired."""
    if not decision.memory.subnet or context.rendered is None or context.blind:
        return decision
    return replace(decision, memory=replace(decision.memory, subnet=""))


def _cleared(context: ReconcileContext, decision: Decision, gone: tuple[Network, ...]) -> Decision:
    """Remove these networks, once the sandbox's own container is off them."""
    box = context.container
    free = [each for each in gone if box is None or (each.name not in box.networks and not context.deleting)]
    if not free or any(isinstance(each, CreateContainer | ConnectNetwork) for each in decision.actions):
        return decision
    why = "deleted" if context.deleting else "its level has no such network"
    actions = [RemoveNetwork(context.obj.uid, each.name, why) for each in free]
    memory = decision.memory if _wanted(context) and not context.deleting else replace(decision.memory, subnet="")
    look = context.now + _RETRY_SECONDS
    until = look if decision.until is None else min(decision.until, look)
    told = replace(decision, memory=memory, actions=(*decision.actions, *actions), until=until, finalize=False)
    return replace(told, reason="Terminating", message="removing its network") if context.deleting else told
