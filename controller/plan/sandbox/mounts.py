"""Mounts of a sandbox: all bound before each start; missing ones bound while it runs, as in one just claimed.

Another folder than the bound one needs a new container: processes with open files would keep the old one. Only the
sandbox's own spec causes that at once. A change of its template is bound at the next start.
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.common.labels import container_name
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action
from controller.kinds.planning.snapshot import DesiredObjects, Sandbox
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import BindMounts, BoundMount, Mount, RemoveVolumes, Slot
from controller.kinds.sandbox import SandboxSpec, keeps_files, restore_source
from controller.plan.base.reconcile_context import ReconcileContext
from controller.plan.sandbox import files
from controller.policy.attest.mounted import missing, resized
from controller.policy.container.mounts import volumes
from controller.policy.sandbox import Rendered

REASON = "MountsMissing"


def desired_mounts(context: ReconcileContext, rendered: Rendered) -> tuple[Mount, ...]:
    """Return the mounts of its container, or of the next one if it has none."""
    return _mounts_of(context, rendered, context.container)


def _mounts_of(context: ReconcileContext, rendered: Rendered, container: Container | None) -> tuple[Mount, ...]:
    """Return the mounts of that container (None: of a new one).

    A pool's member has no owner yet: but for its folders in memory its mount points stay empty. One that begins from a
    snapshot has its workspace in memory, too: to fill that takes longer than a claim.
    """
    own_mounts = rendered.config.mounts
    if context.is_pool_member:
        is_prepared = bool(rendered.config.restore_from)
        own_mounts = tuple(mount for mount in own_mounts if is_prepared and mount.kind == "memory")
    return (*own_mounts, *_folders(rendered, container))


def _folders(rendered: Rendered, container: Container | None) -> tuple[Mount, ...]:
    """Return the folders in memory that this host mounts: in an older container the engine does."""
    folders = rendered.config.memory_mounts
    return folders if container is None else tuple(folder for folder in folders if folder.path in container.slots)


def before_start(
    context: ReconcileContext, rendered: Rendered, image: str, why: str, container: Container | None = None
) -> Iterator[Action]:
    """Bind all mounts again: they are gone after a host reboot, and folders may have been replaced.

    `container` is the one to be started; None: a new one.
    """
    if rendered.config.slots or _folders(rendered, container):
        user, mounts = container.user if container else "", _mounts_of(context, rendered, container)
        yield _bind(context, rendered, mounts, image=image, why=why, container=container, user=user)


def as_started(context: ReconcileContext, rendered: Rendered, container: Container, why: str) -> BindMounts:
    """Return the mounts of an existing container, in the order of its mount points."""
    mounts = _mounts_of(context, rendered, container)
    return _bind(
        context,
        rendered,
        mounts,
        image=container.image_id,
        why=why,
        container=container,
        container_id=container.id,
        user=container.user,
    )


def repair(context: ReconcileContext, container: Container, rendered: Rendered) -> Iterator[Action]:
    """Bind the mounts that are missing in a running sandbox, and record whose files are kept."""
    absent_mounts = missing_mounts(context, container, rendered)
    changed_mounts = tuple(
        mount for mount in _mounts_to_record(context, container, rendered) if mount not in absent_mounts
    )
    if absent_mounts or changed_mounts:
        why = "not bound: " + ", ".join(mount.path for mount in absent_mounts) if absent_mounts else "onSuspend changed"
        mounts, id_ = (*absent_mounts, *changed_mounts), container.id
        yield _bind(
            context,
            rendered,
            mounts,
            image=container.image_id,
            why=why,
            container=container,
            container_id=id_,
            user=container.user,
        )


def _keeps_files(context: ReconcileContext) -> bool:
    """Return True if its files in memory outlive a stop. Most owners want that of a pool's member, too."""
    return context.is_pool_member or keeps_files(context.spec)


def _mounts_to_record(context: ReconcileContext, container: Container, rendered: Rendered) -> Iterator[Mount]:
    """Yield the folders in memory whose record says otherwise if their files are kept."""
    if container.state is not State.RUNNING or container.config_hash != rendered.config_hash:
        return
    keep = _keeps_files(context)
    bound = {folder.path: folder for folder in files.held_folders(container)}
    for mount in desired_mounts(context, rendered):
        if mount.path in bound and bound[mount.path].keeps_files != keep and bound[mount.path].mount == str(mount):
            yield mount


def missing_mounts(context: ReconcileContext, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """Return the mounts missing in a running sandbox.

    A container of another configuration has no mount points for them.
    """
    if container.state is not State.RUNNING or container.config_hash != rendered.config_hash:
        return ()
    absent_mounts = missing(
        desired_mounts(context, rendered), container.inside, container.bound, recorded=not container.unrecorded
    )
    later = waiting(context, container, rendered) if absent_mounts else ()
    return tuple(mount for mount in absent_mounts if mount not in later)


def waiting(context: ReconcileContext, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """Return the template's mounts that replace a bound one at the next start."""
    if context.spec is None or context.spec.template_ref is None or container.config_hash != rendered.config_hash:
        return ()
    bound = {binding.path: binding for binding in container.bound if binding.origin}
    return tuple(
        mount
        for mount in desired_mounts(context, rendered)
        if mount.path in bound
        and bound[mount.path].mount != str(mount)
        and not resized(bound[mount.path], mount)
        and not _is_own(context.spec, mount, bound[mount.path])
    )


def _is_own(spec: SandboxSpec, mount: Mount, bound: BoundMount) -> bool:
    """Return True if it is the workspace that the sandbox itself names, or no longer names."""
    if mount.kind == "volume":
        volume = spec.workspace.volume if spec.workspace else None
        return volume is not None and volume.name == mount.source and not mount.claimed_by
    return mount.kind == "host" or (mount.kind == "memory" and not bound.in_memory)


def replacement_reason(context: ReconcileContext, container: Container, rendered: Rendered) -> str:
    """Return why a container has to be replaced because its own spec now binds something else; "" if it need not."""
    if context.is_pool_member or container.config_hash != rendered.config_hash:
        return ""
    later = waiting(context, container, rendered)
    requested = {mount.path: mount for mount in rendered.config.mounts if mount not in later}
    changed_bindings = [
        binding
        for binding in container.bound
        if binding.path in requested
        and str(requested[binding.path]) != binding.mount
        and not resized(binding, requested[binding.path])
    ]
    return (
        f"bound {changed_bindings[0].mount}, desired {requested[changed_bindings[0].path]}" if changed_bindings else ""
    )


def as_bound(context: ReconcileContext, config: ContainerConfig) -> ContainerConfig:
    """Return the config with volumes of their bound size: without capacity to grow they stay as they are."""
    bound = {binding.path: binding for binding in context.container.bound} if context.container is not None else {}
    bound_mounts = [
        replace(mount, size_bytes=bound[mount.path].size_bytes)
        if mount.path in bound and resized(bound[mount.path], mount)
        else mount
        for mount in config.mounts
    ]
    return replace(config, mounts=tuple(bound_mounts))


def volumes_to_reclaim(desired: DesiredObjects, sandbox: Sandbox) -> tuple[str, ...]:
    """Return the volumes to be removed with a sandbox: marked so by it, and named by no other sandbox."""
    spec, template = sandbox.spec, sandbox.template
    if sandbox.obj.deleted_at is None or sandbox.obj.kind != "Sandbox" or spec is None or template is None:
        return ()
    reclaimed = {volume.source for volume in volumes(spec, template, sandbox.obj.name) if volume.is_reclaimed}
    # Most sandboxes reclaim nothing, and a pass with thousands must not compare all with all.
    for other_sandbox in desired.sandboxes.values() if reclaimed else ():
        if other_sandbox.obj.namespace == sandbox.obj.namespace and other_sandbox.obj.uid != sandbox.obj.uid:
            reclaimed -= _kept_by(other_sandbox)
    return tuple(sorted(reclaimed))


def replaced_volumes(desired: DesiredObjects, sandbox: Sandbox) -> tuple[str, ...]:
    """Return the volumes whose files a rollback replaces: those that no other sandbox names."""
    spec, template = sandbox.spec, sandbox.template
    source = restore_source(spec, template) if spec is not None and template is not None else None
    if spec is None or template is None or source is None or source.at is None:
        return ()
    sources = {volume.source for volume in volumes(spec, template, sandbox.obj.name)}
    return tuple(sorted(sources - shared_volumes(desired, sandbox)))


def shared_volumes(desired: DesiredObjects, sandbox: Sandbox) -> frozenset[str]:
    """Return the volumes that other sandboxes of its namespace name."""
    return frozenset(
        volume.source
        for other_sandbox in desired.sandboxes.values()
        if other_sandbox.obj.namespace == sandbox.obj.namespace and other_sandbox.obj.uid != sandbox.obj.uid
        if other_sandbox.spec is not None and other_sandbox.template is not None
        for volume in volumes(other_sandbox.spec, other_sandbox.template, other_sandbox.obj.name)
    )


def _kept_by(sandbox: Sandbox) -> set[str]:
    """Return the volumes that another sandbox keeps; two that are deleted together keep none that both release."""
    if sandbox.spec is None or sandbox.template is None:
        return set()
    is_being_deleted = sandbox.obj.deleted_at is not None
    named_volumes = volumes(sandbox.spec, sandbox.template, sandbox.obj.name)
    return {volume.source for volume in named_volumes if not (is_being_deleted and volume.is_reclaimed)}


def reclaim_volumes(context: ReconcileContext) -> Iterator[Action]:
    """Yield the removal of the volumes that go with a sandbox of which all else is gone."""
    if context.volumes and not context.state.lifecycle.volumes_reclaimed:
        obj, why = context.obj, "their reclaimPolicy is Delete"
        yield RemoveVolumes(
            uid=obj.uid,
            name=container_name(obj.name, obj.uid),
            namespace=obj.namespace,
            volumes=context.volumes,
            why=why,
            claimed_by=obj.name,
        )


def unready(context: ReconcileContext) -> tuple[str, str]:
    """Return the reason and message while a mount is missing; empty ones if none is."""
    container, rendered = context.container, context.rendered
    absent_mounts = (
        missing_mounts(context, container, rendered) if container is not None and rendered is not None else ()
    )
    smaller = {binding.path: binding for binding in container.bound} if container is not None else {}
    absent_mounts = tuple(
        mount for mount in absent_mounts if mount.path not in smaller or not resized(smaller[mount.path], mount)
    )
    return (REASON, "not bound yet: " + ", ".join(map(str, absent_mounts))) if absent_mounts else ("", "")


def _bind(
    context: ReconcileContext,
    rendered: Rendered,
    mounts: tuple[Mount, ...],
    image: str,
    why: str,
    container: Container | None,
    container_id: str = "",
    user: str = "",
) -> BindMounts:
    """Return the action that mounts these for a container, or for the one that `image` is about to become."""
    config = rendered.config
    folders = (Slot(folder.path) for folder in _folders(rendered, container))
    return BindMounts(
        uid=context.obj.uid,
        name=config.name,
        namespace=context.obj.namespace,
        image=image,
        user=config.user or user,
        slots=(*config.slots, *folders),
        mounts=mounts,
        why=why,
        container_id=container_id,
        own_id=config.own_id,
        keep_files=_keeps_files(context),
        restore_from=config.restore_from,
        replaces=context.replaced_volumes,
    )
