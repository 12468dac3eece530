"""Assignment of user ids: each sandbox has a uid and gid of its own, from its first container on.

An id is recorded before its container is created, and is free again once no record and no container has it. The next
one is that which was free for longest. A container that runs keeps its user until a new generation replaces it.
"""

from collections.abc import Iterable

from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import CreateContainer
from controller.kinds.planning.instance_state import InstanceState
from controller.kinds.runtime.user_ids import own_id
from controller.plan.base.reconcile_context import Decision, ReconcileContext
from controller.policy.sandbox import Rendered

REASON = "NoFreeUserID"
_AGAIN_SECONDS = 30.0


def lacks_user_id(
    obj: StoredObject, rendered: Rendered | None, state: InstanceState, containers: Iterable[Container]
) -> bool:
    """Return True if an object is to get an id now: it has none, and no container that stays as it is."""
    if rendered is None or not rendered.takes_user_id or state.security.user_id:
        return False
    return all(
        container.template_hash not in ("", rendered.template_hash) and container.generation != obj.generation
        for container in containers
    )


def require(context: ReconcileContext, decision: Decision) -> Decision:
    """Return the decision, or a wait if it creates a container whose id is missing: no two sandboxes share one."""
    if not context.lacks_user_id or not any(isinstance(action, CreateContainer) for action in decision.actions):
        return decision
    message = "every id of the setting sandbox_ids is in use; widen it, or delete sandboxes"
    return Decision(context.state, REASON, message, until=context.now + _AGAIN_SECONDS)


def user_label(container: Container) -> str:
    """Return the user of a container, as its spec or image names it; root for none."""
    return container.user or "0"


def shares(context: ReconcileContext) -> bool:
    """Return True if other sandboxes may run as the same user: it is not one that only this sandbox has."""
    container, user_id = context.container, context.state.security.user_id
    return container is not None and (not user_id or own_id(container.user) != user_id)
