"""The bridge shared by a namespace's sandboxes: attached before the start or while running, detached when not desired.

Called by networks.py after the sandbox's own network. The bridge belongs to no single sandbox: the first one that needs
it creates it, and it is removed once no sandbox asks for it (stray_networks.py).
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.common.labels import container_labels, peers_name
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container, Observation
from controller.kinds.planning.action import Action, ConnectNetwork, CreateContainer, DisconnectNetwork
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.snapshot import DesiredObjects
from controller.kinds.runtime.network import EnsureNetwork, Network
from controller.plan.base.reconcile_context import Decision, ReconcileContext, replace_if_changed
from controller.plan.network import egress
from controller.policy.network import peers as policy
from controller.policy.sandbox import Rendered


def has_peers(context: ReconcileContext) -> bool:
    """Return True if it is to be attached to the bridge of its peers."""
    return context.rendered is not None and context.rendered.config.joins_peers


def networks(context: ReconcileContext, rendered: Rendered) -> tuple[str, ...]:
    """Return the networks that its container is to be attached to, its own first."""
    shared = (peers_name(context.obj.namespace),) if rendered.config.joins_peers else ()
    return (rendered.config.network_mode, *shared)


def join_actions(context: ReconcileContext, rendered: Rendered, container_id: str, why: str) -> Iterator[Action]:
    """Yield the actions that attach its container to the shared bridge."""
    for network in networks(context, rendered)[1:]:
        yield ConnectNetwork(
            uid=context.obj.uid,
            name=rendered.config.name,
            container_id=container_id,
            network=network,
            why=why,
            aliases=policy.names(context.obj.name),
            peer_names=rendered.config.peer_names,
        )


def rename_actions(context: ReconcileContext, container: Container, rendered: Rendered) -> Iterator[Action]:
    """Yield the actions that attach it to the shared bridge anew, if it knows its peers by other names."""
    shared = peers_name(context.obj.namespace)
    desired = rendered.config.peer_names
    if not rendered.config.joins_peers or shared not in container.networks or container.peer_names == desired:
        return
    why = f"names of its peers found {_names(container.peer_names)}, desired {_names(desired)}"
    yield DisconnectNetwork(
        uid=context.obj.uid, name=container.name, container_id=container.id, network=shared, why=why
    )
    yield from join_actions(context, rendered, container.id, why)


def _names(peer_names: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} for {sandbox}" for name, sandbox in peer_names) or "none"


def reconcile_peers(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with the actions on the shared bridge, which is created where it is needed."""
    if context.blind or context.rendered is None or decision.reason == "Unreadable":
        return decision
    decision = replace_if_changed(decision, state=_with_peers_subnet(context, decision))
    shared = peers_name(context.obj.namespace)
    joins = [action for action in decision.actions if isinstance(action, ConnectNetwork) and action.network == shared]
    if not joins:
        return decision
    reason = _join_obstacle(context)
    # A new container waits, as it would start without its peers; a running one goes on without them.
    if reason is not None and any(isinstance(action, CreateContainer) for action in decision.actions):
        return Decision(context.state, *reason)
    if reason is not None:
        return replace(decision, actions=tuple(action for action in decision.actions if action not in joins))
    if not _differs(context):
        return decision
    # Before the container that is created on it, or is connected to it.
    at = next(n for n, action in enumerate(decision.actions) if action in joins or isinstance(action, CreateContainer))
    return replace(decision, actions=(*decision.actions[:at], _ensure(context), *decision.actions[at:]))


def has_other_network(context: ReconcileContext) -> bool:
    """Return True if a stopped container cannot start because the shared bridge was replaced since."""
    container = context.container
    return (
        has_peers(context)
        and container is not None
        and peers_name(context.obj.namespace) in container.networks
        and _differs(context)
    )


def network_ready(context: ReconcileContext, own_condition: Condition) -> Condition:
    """Return the condition of its own network, with the state of the shared bridge."""
    if own_condition.status != "True" or not has_peers(context):
        return own_condition
    if context.container is None or peers_name(context.obj.namespace) not in context.container.networks:
        reason = _join_obstacle(context) or ("NotJoined", "it is not attached to the bridge of its peers yet")
        return Condition(own_condition.type, "False", *reason)
    if (shared := context.network.peers) is None or not shared.is_linked:
        message = f"the bridge {peers_name(context.obj.namespace)} of its peers is gone; its next start makes it again"
        return Condition(own_condition.type, "False", egress.NETWORK_GONE, message)
    message = f"{own_condition.message}; joined with the others of namespace {context.obj.namespace} that ask for it"
    return replace(own_condition, message=message)


def deserted_bridges(desired: DesiredObjects, observed: Observation) -> list[Network]:
    """Return the shared bridges that no sandbox asks for, and nothing is attached to."""
    shared_networks = [
        network for network in observed.networks.values() if network.role == policy.ROLE and not network.uid
    ]
    if not shared_networks:
        return []
    sandboxes = desired.sandboxes.values()
    namespaces = {
        sandbox.obj.namespace for sandbox in sandboxes if sandbox.spec and sandbox.spec.network.peers == "Allowed"
    }
    used_names = {
        name for containers in observed.containers.values() for container in containers for name in container.networks
    }
    return [
        network for network in shared_networks if network.namespace not in namespaces and network.name not in used_names
    ]


def _join_obstacle(context: ReconcileContext) -> tuple[str, str] | None:
    """Return the reason and message why nothing may be attached to the shared bridge; None: it may."""
    reason = egress.start_obstacle(context)
    if reason is None and not context.network.peers_subnet:
        message = (
            f"no /{policy.PREFIX} of {context.network.range} is free for its peers; set a larger PADDOCK_NETWORK_RANGE"
        )
        return egress.NO_SUBNET, message
    return reason


def _with_peers_subnet(context: ReconcileContext, decision: Decision) -> InstanceState:
    return replace_if_changed(
        decision.state,
        network=replace_if_changed(
            decision.state.network, peers_subnet=context.network.peers_subnet if has_peers(context) else ""
        ),
    )


def _differs(context: ReconcileContext) -> bool:
    bridge, subnet = context.network.peers, context.network.peers_subnet
    if bridge is None or not bridge.is_linked or not subnet:
        return True
    return bridge.config_hash != policy.bridge(context.obj.namespace, subnet).hash()


def _ensure(context: ReconcileContext) -> EnsureNetwork:
    """Return the action that makes the shared bridge as the namespace has it."""
    config = policy.bridge(context.obj.namespace, context.network.peers_subnet)
    labels = container_labels(
        instance=context.instance_id,
        uid="",
        namespace=context.obj.namespace,
        name="",
        role=policy.ROLE,
        generation=0,
        config_hash=config.hash(),
        template_hash="",
    )
    bridge_ = f"bridge for the peers of namespace {context.obj.namespace}"
    why = f"the {bridge_} differs from the desired one" if context.network.peers is not None else f"found no {bridge_}"
    return EnsureNetwork(uid="", config=config, labels=labels, why=why)
