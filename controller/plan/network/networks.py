"""Networks of a sandbox: the one entry to egress, bridge and peers.

`reconcile_networks` is called at one place, by plan/deciders.py, with the decision for the sandbox itself. What is
missing is created before the sandbox's own start; what is no longer needed is removed after it. The guard, which stops
or freezes a sandbox, is a decider of its own (plan/sandbox/guard.py).
"""

from collections.abc import Iterator

from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import Action
from controller.plan.base.claim import NONE as NONE
from controller.plan.base.claim import Share as Share
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.plan.network import bridge, egress, peers
from controller.plan.network.egress import UNGUARDED as UNGUARDED
from controller.plan.network.egress import record as egress_record
from controller.plan.network.egress import share as share
from controller.plan.network.egress import waits_for_retry as waits_for_retry
from controller.policy.sandbox import Rendered

__all__ = ["NONE", "UNGUARDED", "Share", "egress_record", "share", "waits_for_retry"]

# Each gets the decision of the one before: the sealed network, the bridge to the Internet, the bridge among peers.
_RECONCILERS = (egress.reconcile_egress, bridge.reconcile_bridge, peers.reconcile_peers)


def reconcile_networks(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision with all actions on the sandbox's networks, or the reason why it cannot start yet."""
    for reconcile in _RECONCILERS:
        decision = reconcile(context, decision)
    return decision


def names(context: ReconcileContext, rendered: Rendered) -> tuple[str, ...]:
    """Return the networks that the sandbox's container is to be attached to, its own first."""
    return peers.networks(context, rendered)


def connect_peers(context: ReconcileContext, rendered: Rendered, container_id: str, why: str) -> Iterator[Action]:
    """Yield the actions that attach the container to the bridge shared with its peers."""
    return peers.join_actions(context, rendered, container_id, why)


def rename_peers(context: ReconcileContext, container: Container, rendered: Rendered) -> Iterator[Action]:
    """Yield the actions that give the container the names of its peers that its spec has."""
    return peers.rename_actions(context, container, rendered)


def has_other_network(context: ReconcileContext) -> bool:
    """Return True if a stopped container cannot start because a network of it was replaced since."""
    return bridge.has_other_network(context) or peers.has_other_network(context)


def not_ready_condition(context: ReconcileContext) -> Condition | None:
    """Return the Ready condition of a sandbox whose network is gone; None: it is there, or it has none."""
    missing = egress.missing_condition(context)
    return None if missing is None else Condition("Ready", missing.status, missing.reason, missing.message)


def condition(context: ReconcileContext) -> Condition:
    """Return the NetworkReady condition."""
    return peers.network_ready(context, bridge.network_ready(context) or egress.network_ready(context))
