"""Network state of one object's container: its sealed network and its egress container, as recorded and as seen."""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from controller.kinds.common.labels import egress_uid, local_name, peers_name, public_name, sealed_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, Observation
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.network import Network
from controller.policy.levels.levels import GuardLost, Policy
from controller.policy.network import egress, peers
from controller.policy.sandbox import Rendered

SUBNET_TAKEN = "SubnetTaken"
Subnets = Callable[[Snapshot], set[str]]


@dataclass(frozen=True, slots=True)
class NetworkContext:
    """State of the networks of one object."""

    record: Instance | None = None
    """Record of its egress container."""
    containers: tuple[Container, ...] = ()
    """Containers that bear the egress container's uid."""
    sealed: Network | None = None
    """Its sealed network."""
    uplink: Network | None = None
    """Bridge that all egress containers share."""
    subnet: str = ""
    """Subnet of its network, now or when created; empty: none is free or needed."""
    unguarded: str = ""
    """Reason why nothing new may be attached to a network; empty: it may."""
    range: str = ""
    """Range where subnets are taken from (CIDR)."""
    bridges: tuple[Network, ...] = ()
    """Its own bridges that lead to the Internet."""
    untried: str = ""
    """Reason why it is not known yet if something may be attached."""
    peers: Network | None = None
    """Bridge that its namespace shares."""
    peers_subnet: str = ""
    """Subnet of that, now or when created."""
    guard_lost: str = ""
    """Reason why the guard does not confine what runs; empty: it does, or its state is unreadable."""
    on_guard_lost: GuardLost = "pause"
    """Consequence for a sandbox that only the guard confines."""
    lacks_subnet: bool = False
    """No subnet is free for it."""
    unresolved: tuple[str, ...] = ()
    """Listed hosts that had no address when it last asked for them."""


NOTHING = NetworkContext()


def network_context(
    snapshot: Snapshot,
    obj: StoredObject,
    rendered: Rendered | None,
    state: InstanceState,
    policy: Policy,
    subnets: Subnets,
) -> NetworkContext:
    """Return the network state of one object. `subnets` gives the assigned subnets; a new one is added to them."""
    uid, observed = egress_uid(obj.uid), snapshot.observed
    record, containers = snapshot.instances.get(uid), observed.containers.get(uid, ())
    network = observed.networks.get(sealed_name(obj.uid))
    # A network of its name and another's label is not its own, and is not removed with it.
    if network is not None and network.uid != obj.uid:
        network = None
    bridges = _bridges(snapshot.observed, obj)
    if rendered is not None and rendered.open is not None:
        subnets_of = {bridge.name: bridge.subnet for bridge in bridges}
        # The subnet of a bridge that it is moved away from would make both networks overlap.
        recorded = "" if state.network.subnet in subnets_of.values() else state.network.subnet
        needs_subnet, known_subnet = True, subnets_of.get(rendered.open.network) or recorded
    else:
        needs_subnet = rendered is not None and rendered.sealed is not None
        known_subnet = record.state.network.subnet if record else network.subnet if network else ""
    if not needs_subnet and record is None and not containers and network is None and not bridges:
        return NOTHING
    subnet = known_subnet
    # The engine refused that subnet, as of a network of others: it tries another one.
    if needs_subnet and _is_lost(subnet, state):
        subnet = ""
    if needs_subnet and not subnet:
        used_subnets = subnets(snapshot)
        subnet = egress.subnet_for(obj.uid, policy.network_range, used_subnets)
        # The next object of this pass must not get the same one.
        used_subnets.add(subnet)
    shared = _peers(snapshot.observed, obj)
    joins = rendered is not None and rendered.config.joins_peers
    peers_subnet = _peers_subnet(snapshot, obj, state, bridge=shared, policy=policy, subnets=subnets) if joins else ""
    return NetworkContext(
        record=record,
        containers=containers,
        sealed=network,
        uplink=observed.networks.get(egress.UPLINK),
        subnet=subnet,
        unguarded=observed.unguarded or snapshot.host.canary.broken,
        untried="" if snapshot.host.canary.broken else snapshot.host.canary.message,
        range=policy.network_range,
        bridges=bridges,
        peers=shared,
        guard_lost=snapshot.host.canary.broken or (observed.unguarded if observed.guard_lost else ""),
        on_guard_lost=policy.guard_lost,
        peers_subnet=peers_subnet,
        unresolved=snapshot.measured.unresolved_hosts.get(obj.uid, ()),
        lacks_subnet=(needs_subnet and not subnet) or (joins and not peers_subnet),
    )


def _peers(observed: Observation, obj: StoredObject) -> Network | None:
    bridge = observed.networks.get(peers_name(obj.namespace))
    return bridge if bridge is not None and bridge.role == peers.ROLE and not bridge.uid else None


def _peers_subnet(
    snapshot: Snapshot,
    obj: StoredObject,
    state: InstanceState,
    bridge: Network | None,
    policy: Policy,
    subnets: Subnets,
) -> str:
    """Return the shared bridge's subnet; else the one recorded for it in this namespace; else a free one."""
    if bridge is not None:
        return bridge.subnet
    recorded_subnets = (
        instance.state.network.peers_subnet
        for instance in snapshot.instances.values()
        if instance.namespace == obj.namespace
    )
    recorded = next(
        (
            candidate
            for candidate in (state.network.peers_subnet, *recorded_subnets)
            if candidate and not _is_lost(candidate, state)
        ),
        "",
    )
    if recorded:
        return recorded
    used_subnets = subnets(snapshot)
    lost = {block for former in (state.network.peers_subnet,) if former for block in egress.parts(former)}
    digits = hashlib.sha256(obj.namespace.encode()).hexdigest()
    chosen = egress.subnet_for(digits, policy.network_range, used_subnets | lost, peers.PREFIX)
    used_subnets.update(egress.parts(chosen) if chosen else ())
    return chosen


def _bridges(observed: Observation, obj: StoredObject) -> tuple[Network, ...]:
    networks = observed.networks
    candidates = (networks.get(name) for name in (public_name(obj.uid), local_name(obj.uid))) if networks else ()
    return tuple(network for network in candidates if network is not None and network.uid == obj.uid)


def taken_subnets(instances: Collection[Instance], networks: Collection[Network]) -> set[str]:
    """Return all subnets in use or recorded."""
    recorded = {instance.state.network.subnet for instance in instances if instance.state.network.subnet}
    shared = {instance.state.network.peers_subnet for instance in instances if instance.state.network.peers_subnet}
    shared |= {network.subnet for network in networks if network.role == peers.ROLE}
    observed = {network.subnet for network in networks}
    # A shared bridge is larger than a sandbox's own: each block in it is taken.
    return recorded | observed | {block for peers_subnet in shared for block in egress.parts(peers_subnet)}


def _is_lost(subnet: str, state: InstanceState) -> bool:
    """Return True if the engine refused a network on this subnet because the host uses it otherwise."""
    failure = state.backoff.failure
    return bool(subnet) and failure is not None and failure.reason == SUBNET_TAKEN and failure.subnet == subnet
