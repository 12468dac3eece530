"""The take-over of a warm member by the sandbox that claimed it."""

from dataclasses import replace

from controller.kinds.common.labels import container_name
from controller.kinds.planning.action import RenameContainer
from controller.plan.base.reasons import CLAIMING
from controller.plan.base.reconcile_context import Decision, ReconcileContext


def settle(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision, held at Claiming while anything but the name differs in the container taken over.

    The name does not delay Ready: everything goes by ids, and a rename is one more engine call. It does where nothing
    else would tell a restored store that the member is used.
    """
    unmarked = is_unmarked(context)
    if not decision.state.claiming and not unmarked:
        return decision
    first = tuple(action for action in decision.actions if unmarked or not isinstance(action, RenameContainer))
    if first and not decision.reason:
        drift = tuple(field for field in decision.drift if unmarked or field != "name")
        message = "taking over a warm member: " + ", ".join(drift)
        return replace(decision, actions=first, drift=drift, reason=CLAIMING, message=message)
    if decision.reason in ("EngineUnreachable", "Waking"):
        return decision
    return replace(decision, state=replace(decision.state, claiming=False))


def unready(context: ReconcileContext) -> tuple[str, str]:
    """Return the reason and message while a claimed container looks like a warm one; empty ones if it does not."""
    return (
        (CLAIMING, "taking over a warm member: its container has no name of its own yet")
        if is_unmarked(context)
        else ("", "")
    )


def is_unmarked(context: ReconcileContext) -> bool:
    """Return True while a claimed container looks like a warm one: with a member's name, filled from a snapshot.

    A claim binds nothing in that one: its workspace was filled before.
    """
    container, rendered, member = context.container, context.rendered, context.state.hostname
    if context.obj.kind != "Sandbox" or container is None or rendered is None or not member:
        return False
    is_filled = bool(rendered.config.restore_from)
    return is_filled and container.name == container_name(member, container.uid) != rendered.config.name
