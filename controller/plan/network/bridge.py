"""The guarded bridge of a sandbox with Internet access: created before its container, removed after it.

Called by networks.py with the decision for the sandbox itself. Without the guard nothing is started on it: nothing else
confines this network.
"""

from dataclasses import replace

from controller.kinds.common.labels import container_labels
from controller.kinds.meta import Condition
from controller.kinds.planning.action import Action, ConnectNetwork, CreateContainer, StartContainer
from controller.kinds.runtime.network import EnsureNetwork, Network, RemoveNetwork
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext, replace_if_changed
from controller.plan.network import egress
from controller.policy.network.bridge import Open

ROLE = "public"
_RETRY_SECONDS = 1.0


def reconcile_bridge(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with the actions on the bridge."""
    desired, bridges = _open_network(context), context.network.bridges
    if desired is None and not bridges:
        return _without_subnet(context, decision)
    if context.blind or egress.waits_for_retry(decision) or decision.reason == "Unreadable":
        return decision
    if context.deleting or desired is None:
        # An unreadable spec says nothing of its network: nothing is removed for it.
        is_unreadable = context.rendered is None and not context.deleting
        return decision if is_unreadable else _remove_bridges(context, decision, bridges)
    decision = _remove_bridges(context, decision, tuple(bridge for bridge in bridges if bridge.name != desired.network))
    joins = [at for at, action in enumerate(decision.actions) if _joins(action, desired)]
    if not joins:
        return decision
    first_join = decision.actions[joins[0]]
    if not isinstance(first_join, ConnectNetwork) and (obstacle := egress.start_obstacle(context)) is not None:
        return Decision(context.state if isinstance(first_join, CreateContainer) else decision.state, *obstacle)
    if not context.network.subnet:
        return decision
    state = replace_if_changed(
        decision.state, network=replace_if_changed(decision.state.network, subnet=context.network.subnet)
    )
    if not _differs(context, desired):
        return replace(decision, state=state)
    # The bridge has to be there before the first action that needs it.
    before, after = decision.actions[: joins[0]], decision.actions[joins[0] :]
    return replace(decision, state=state, actions=(*before, _ensure(context, desired), *after))


def has_other_network(context: ReconcileContext) -> bool:
    """Return True if a stopped container cannot start because its network is not the one that it was created on."""
    desired = _open_network(context)
    return egress.has_other_network(context) if desired is None else _differs(context, desired)


def network_ready(context: ReconcileContext) -> Condition | None:
    """Return the NetworkReady condition; None: it has no bridge of this kind."""
    desired = _open_network(context)
    if desired is None:
        return None
    if context.blind:
        return Condition("NetworkReady", "Unknown", "EngineUnreachable", context.blind)
    obstacle, container = egress.start_obstacle(context), context.container
    is_attached = container is not None and container.state in ALIVE and container.networks == (desired.network,)
    # Worst first: without a guard, with one of unknown state, cut off, and only then as desired.
    if is_attached and context.unconfined:
        return Condition("NetworkReady", "False", egress.UNGUARDED, context.unconfined)
    if is_attached and context.network.unguarded:
        message = f"it runs on, though the guard's state is unknown: {context.network.unguarded}"
        return Condition("NetworkReady", "Unknown", egress.UNGUARDED, message)
    if is_attached:
        cut = egress.missing_condition(context) or egress.cut_off_condition(_existing(context, desired))
        if cut is not None:
            return cut
        message = "the Internet and the local network" if desired.local else "the Internet, and nothing local"
        return Condition("NetworkReady", "True", "Local" if desired.local else "Public", f"reaches {message}")
    if container is not None and container.state in ALIVE:
        return Condition("NetworkReady", "False", "NotUp", f"it is not on {desired.network} alone")
    if obstacle is not None:
        return Condition("NetworkReady", "False", *obstacle)
    return Condition("NetworkReady", "False", "NotRunning", "the sandbox does not run")


def _open_network(context: ReconcileContext) -> Open | None:
    return context.rendered.open if context.rendered else None


def _joins(action: Action, desired: Open) -> bool:
    """Return True if the action attaches something to the bridge."""
    if isinstance(action, ConnectNetwork):
        return action.network == desired.network
    return isinstance(action, CreateContainer | StartContainer)


def _differs(context: ReconcileContext, desired: Open) -> bool:
    bridge = _existing(context, desired)
    return bridge is None or not bridge.is_linked or bridge.config_hash != desired.bridge(context.network.subnet).hash()


def _existing(context: ReconcileContext, desired: Open) -> Network | None:
    return next((bridge for bridge in context.network.bridges if bridge.name == desired.network), None)


def _ensure(context: ReconcileContext, desired: Open) -> EnsureNetwork:
    """Return the action that makes the bridge as its spec has it."""
    config = desired.bridge(context.network.subnet)
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
    has_bridge = any(bridge.name == desired.network for bridge in context.network.bridges)
    why = "its bridge differs from the desired one" if has_bridge else "found no bridge of its own"
    return EnsureNetwork(uid=context.obj.uid, config=config, labels=labels, why=why)


def _without_subnet(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision without the recorded subnet of a bridge that does not exist and is no longer desired."""
    if not decision.state.network.subnet or context.rendered is None or context.blind:
        return decision
    return replace(decision, state=replace(decision.state, network=replace(decision.state.network, subnet="")))


def _remove_bridges(context: ReconcileContext, decision: Decision, strays: tuple[Network, ...]) -> Decision:
    """Remove these networks, once the sandbox's own container is off them."""
    container = context.container
    free = [
        stray
        for stray in strays
        if container is None or (stray.name not in container.networks and not context.deleting)
    ]
    if not free or any(isinstance(action, CreateContainer | ConnectNetwork) for action in decision.actions):
        return decision
    why = "deleted" if context.deleting else "its level has no such network"
    actions = [RemoveNetwork(uid=context.obj.uid, name=network.name, why=why) for network in free]
    state = (
        decision.state
        if _open_network(context) and not context.deleting
        else replace(decision.state, network=replace(decision.state.network, subnet=""))
    )
    next_look = context.now + _RETRY_SECONDS
    until = next_look if decision.until is None else min(decision.until, next_look)
    # Not finalized before the network is gone: the next pass sees if it is.
    cleared = replace(decision, state=state, actions=(*decision.actions, *actions), until=until, finalize=False)
    return replace(cleared, reason="Terminating", message="removing its network") if context.deleting else cleared
