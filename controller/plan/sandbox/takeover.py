"""The take-over of a warm member by the sandbox that claimed it."""

from dataclasses import replace

from controller.kinds.planning.action import RenameContainer
from controller.plan.base.reasons import CLAIMING
from controller.plan.base.reconcile_context import Decision


def settle(decision: Decision) -> Decision:
    """Return the decision, held at Claiming while anything but the name differs in the container taken over.

    The name does not delay Ready: everything goes by ids, and a rename is one more engine call.
    """
    if not decision.state.claim.is_pending:
        return decision
    first = tuple(action for action in decision.actions if not isinstance(action, RenameContainer))
    if first and not decision.reason:
        drift = tuple(field for field in decision.drift if field != "name")
        message = "taking over a warm member: " + ", ".join(drift)
        return replace(decision, actions=first, drift=drift, reason=CLAIMING, message=message)
    if decision.reason in ("EngineUnreachable", "Waking"):
        return decision
    return replace(decision, state=replace(decision.state, claim=replace(decision.state.claim, is_pending=False)))
