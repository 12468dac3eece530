"""Mounts of a sandbox: all bound before each start; missing ones bound while it runs, as in one just claimed.

Another folder than the bound one needs a new container: processes with open files would keep the old one. Only the
sandbox's own spec causes that at once. A change of its template is bound at the next start.
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.common.labels import container_name
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import BindMounts, BoundMount, Mount, RemoveVolumes
from controller.kinds.sandbox import SandboxSpec
from controller.plan.common.reconcile_context import ReconcileContext
from controller.policy.attest.mounted import missing, resized
from controller.policy.mounts import volumes
from controller.policy.sandbox import Rendered

REASON = "MountsMissing"


def wanted(context: ReconcileContext, rendered: Rendered) -> tuple[Mount, ...]:
    """Return the mounts to be bound. A pool's member has no owner yet: its mount points stay empty."""
    return rendered.config.mounts if context.obj.kind == "Sandbox" else ()


def before_start(
    context: ReconcileContext, rendered: Rendered, image: str, why: str, user: str = ""
) -> Iterator[Action]:
    """Bind all mounts again: they are gone after a host reboot, and folders may have been replaced.

    `user` is that of the container, if there is one.
    """
    if rendered.config.slots:
        yield _bind(context, rendered, wanted(context, rendered), image, why, user=user)


def repair(context: ReconcileContext, container: Container, rendered: Rendered) -> Iterator[Action]:
    """Bind the mounts that are missing in a running sandbox."""
    found = absent(context, container, rendered)
    if found:
        why = "not bound: " + ", ".join(each.path for each in found)
        yield _bind(context, rendered, found, container.image_id, why, container.id, container.user)


def absent(context: ReconcileContext, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """Return the mounts missing in a running sandbox.

    A container of another configuration has no mount points for them.
    """
    if container.state is not State.RUNNING or container.config_hash != rendered.config_hash:
        return ()
    found = missing(wanted(context, rendered), container.inside, container.bound, recorded=not container.unrecorded)
    later = waiting(context, container, rendered) if found else ()
    return tuple(each for each in found if each not in later)


def waiting(context: ReconcileContext, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """Return the template's mounts that replace a bound one at the next start."""
    if context.spec is None or context.spec.template_ref is None or container.config_hash != rendered.config_hash:
        return ()
    bound = {each.path: each for each in container.bound if each.origin}
    return tuple(
        each
        for each in wanted(context, rendered)
        if each.path in bound
        and bound[each.path].mount != str(each)
        and not resized(bound[each.path], each)
        and not _is_own(context.spec, each, bound[each.path])
    )


def _is_own(spec: SandboxSpec, mount: Mount, bound: BoundMount) -> bool:
    """Return True if it is the workspace that the sandbox itself names, or no longer names."""
    if mount.kind == "volume":
        named = spec.workspace.volume if spec.workspace else None
        return named is not None and named.name == mount.source and not mount.claimed_by
    return mount.kind == "host" or (mount.kind == "memory" and not bound.in_memory)


def changed(context: ReconcileContext, container: Container, rendered: Rendered) -> str:
    """Return why a container has to be replaced because its own spec now binds something else; "" if it need not."""
    if context.obj.kind != "Sandbox" or container.config_hash != rendered.config_hash:
        return ""
    later = waiting(context, container, rendered)
    asked = {each.path: each for each in rendered.config.mounts if each not in later}
    other = [
        each
        for each in container.bound
        if each.path in asked and str(asked[each.path]) != each.mount and not resized(each, asked[each.path])
    ]
    return f"bound {other[0].mount}, desired {asked[other[0].path]}" if other else ""


def as_bound(context: ReconcileContext, config: ContainerConfig) -> ContainerConfig:
    """Return the config with volumes of their bound size: without capacity to grow they stay as they are."""
    bound = {each.path: each for each in context.container.bound} if context.container is not None else {}
    kept = [
        replace(each, size_bytes=bound[each.path].size_bytes)
        if each.path in bound and resized(bound[each.path], each)
        else each
        for each in config.mounts
    ]
    return replace(config, mounts=tuple(kept))


def passing(snapshot: Snapshot, sandbox: Sandbox) -> tuple[str, ...]:
    """Return the volumes to be removed with a sandbox: marked so by it, and named by no other sandbox."""
    spec, template = sandbox.spec, sandbox.template
    if sandbox.obj.deleted_at is None or sandbox.obj.kind != "Sandbox" or spec is None or template is None:
        return ()
    going = {each.source for each in volumes(spec, template, sandbox.obj.name) if each.passing}
    for other in snapshot.sandboxes.values() if going else ():
        if other.obj.namespace == sandbox.obj.namespace and other.obj.uid != sandbox.obj.uid:
            going -= _kept_by(other)
    return tuple(sorted(going))


def _kept_by(other: Sandbox) -> set[str]:
    """Return the volumes that another sandbox keeps; two that are deleted together keep none that both release."""
    if other.spec is None or other.template is None:
        return set()
    gone = other.obj.deleted_at is not None
    found = volumes(other.spec, other.template, other.obj.name)
    return {each.source for each in found if not (gone and each.passing)}


def with_it(context: ReconcileContext) -> Iterator[Action]:
    """Yield the removal of the volumes that go with a sandbox of which all else is gone."""
    if context.volumes and not context.memory.reclaimed:
        obj, why = context.obj, "their reclaimPolicy is Delete"
        yield RemoveVolumes(
            obj.uid, container_name(obj.name, obj.uid), obj.namespace, context.volumes, why, claimed_by=obj.name
        )


def unready(context: ReconcileContext) -> tuple[str, str]:
    """Return the reason and message while a mount is missing; empty ones if none is."""
    container, rendered = context.container, context.rendered
    found = absent(context, container, rendered) if container is not None and rendered is not None else ()
    smaller = {each.path: each for each in container.bound} if container is not None else {}
    found = tuple(each for each in found if each.path not in smaller or not resized(smaller[each.path], each))
    return (REASON, "not bound yet: " + ", ".join(map(str, found))) if found else ("", "")


def _bind(
    context: ReconcileContext,
    rendered: Rendered,
    mounts: tuple[Mount, ...],
    image: str,
    why: str,
    container_id: str = "",
    user: str = "",
) -> BindMounts:
    config = rendered.config
    return BindMounts(
        uid=context.obj.uid,
        name=config.name,
        namespace=context.obj.namespace,
        image=image,
        user=config.user or user,
        slots=config.slots,
        mounts=mounts,
        why=why,
        container_id=container_id,
        own_id=config.own_id,
    )
