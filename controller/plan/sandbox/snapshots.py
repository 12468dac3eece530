"""Snapshots that a sandbox begins from: its root layer is filled before the first start of each container."""

from collections.abc import Iterator

from controller.kinds.planning.action import Action
from controller.kinds.runtime.snapshot import RestoreRoot
from controller.plan.base.reconcile_context import ReconcileContext
from controller.policy.sandbox import Rendered


def restore_root(
    context: ReconcileContext, rendered: Rendered, container_id: str, why: str, user: str = ""
) -> Iterator[Action]:
    """Yield the action that fills the root layer of a created container; nothing if it begins from its image alone.

    `container_id` "": of the one that the same group creates. `user` is that of an existing container.
    """
    config = rendered.config
    if not config.restore_from:
        return
    points = (*(slot.path for slot in config.slots), *(folder.path for folder in config.tmpfs))
    yield RestoreRoot(
        uid=context.obj.uid,
        name=config.name,
        namespace=context.obj.namespace,
        key=config.restore_from,
        level=rendered.level,
        image=config.image,
        user=config.user or user,
        slots=points,
        why=why,
        own_id=config.own_id,
        container_id=container_id,
    )
