"""Names of containers that were changed out-of-band, and are put right. A container is known by its labels and its id.

Two of ours that have each other's names can't be renamed at once: the engine refuses a name that is taken. So each of
them first gets a name that nothing else has.
"""

from controller.kinds.observed.observed import Container, Observation
from controller.kinds.planning.action import RenameContainer
from controller.plan.base.reconcile_context import ReconcileContext, replace_if_changed

NAME_CONFLICT = "NameConflict"


def with_taken_names(context: ReconcileContext, observed: Observation) -> ReconcileContext:
    """Return the context with the names of other objects' containers, if a name was in the way before."""
    failure = context.state.backoff.failure
    if failure is None or failure.reason != NAME_CONFLICT:
        return context
    mine = {container.uid for container in (context.container, *context.network.containers) if container is not None}
    names = (container.name for uid, group in observed.containers.items() if uid not in mine for container in group)
    return replace_if_changed(context, taken_names=frozenset(names))


def rename_action(context: ReconcileContext, container: Container, name: str) -> RenameContainer:
    """Return the action that gives the container its name, or makes way for another one of ours that has that name."""
    aside = f"{name}-{container.id[:12]}"
    if name in context.taken_names and container.name != aside:
        why = f"name found {container.name}, desired {name}, which another container has"
        return RenameContainer(uid=container.uid, name=aside, container_id=container.id, was=container.name, why=why)
    why = f"name found {container.name}, desired {name}"
    return RenameContainer(uid=container.uid, name=name, container_id=container.id, was=container.name, why=why)
