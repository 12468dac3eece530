"""Sealed networks of ours without a stored object: removed as late, and as carefully, as orphaned containers.

A network bears our instance id, so Paddock created it; it leads nowhere, and one in use cannot be removed.
"""

from controller.kinds.meta import Event, ObjectRef
from controller.kinds.planning.plan import Group
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.network import Network, RemoveNetwork
from controller.plan.base.memo import Memo
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.network import peers


def sweep(builder: PlanBuilder, snapshot: Snapshot, memo: Memo) -> None:
    """Remove networks that have been strays for the grace of orphans. A blind pass resets every grace."""
    if snapshot.observed.blind:
        memo.stray_networks = {}
        return
    uids_of_owners = (snapshot.desired.sandboxes, snapshot.instances, snapshot.observed.containers)
    owned = (network for network in snapshot.observed.networks.values() if network.uid)
    strays = [network for network in owned if not any(network.uid in uids for uids in uids_of_owners)]
    strays += peers.deserted_bridges(snapshot.desired, snapshot.observed)
    if not strays and not memo.stray_networks:
        return
    now, grace = snapshot.now, snapshot.rules.sweep.grace_seconds
    memo.stray_networks = {stray.id: min(memo.stray_networks.get(stray.id, now), now) for stray in strays}
    if snapshot.rules.sweep.withheld:
        return
    for stray in strays:
        due = memo.stray_networks[stray.id] + grace
        if now < due:
            builder.wakes.append(due)
        elif (stray.uid or stray.name) not in snapshot.progress.in_flight:
            _remove(builder, stray, now, grace)


def _remove(builder: PlanBuilder, network: Network, now: float, grace: float) -> None:
    """Add the removal of one network, in a group of its own: no sandbox is planned that it could belong to."""
    ref = ObjectRef(
        kind="Sandbox", namespace=network.namespace, name=network.object_name, uid=network.uid or network.name
    )
    action = RemoveNetwork(uid=network.uid, name=network.name, why=f"no object is stored for it for {grace:g} s")
    builder.groups.append(Group(ref, generation=0, deleting=True, actions=(action,)))
    if network.uid:  # a shared one was no single sandbox's, and it is no wonder that nobody needs it any more
        builder.events.append(Event(ref, "Warning", "Orphaned", f"{action} ({action.why})", now))
