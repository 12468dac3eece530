"""What is bound into a box: all of it before each start; what is missing while it runs, as in one just claimed, then.

Another folder than the one that is bound needs a new container: whoever has files open in the old one would keep them.
Only the sandbox's own spec asks for that at once. What a template names otherwise is bound at the next start.
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.common.labels import container_name
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import BindMounts, Bound, Mount, RemoveVolumes
from controller.kinds.sandbox import SandboxSpec
from controller.plan.common.reconcile_context import ReconcileContext
from controller.policy.attest.mounted import missing, resized
from controller.policy.mounts import volumes
from controller.policy.sandbox import Rendered

REASON = "MountsMissing"


def wanted(context: ReconcileContext, rendered: Rendered) -> tuple[Mount, ...]:
    """What is to be bound. A pool's member is nobody's yet: its places stay empty."""
    return rendered.config.mounts if context.obj.kind == "Sandbox" else ()


def before_start(context: ReconcileContext, rendered: Rendered, image: str, why: str) -> Iterator[Action]:
    """Places and mounts made anew: they are gone with the host's last boot, and folders may have been replaced."""
    if rendered.config.slots:
        yield _bind(context, rendered, wanted(context, rendered), image, why)


def repair(context: ReconcileContext, container: Container, rendered: Rendered) -> Iterator[Action]:
    """What is missing in a box that runs."""
    found = absent(context, container, rendered)
    if found:
        why = "not bound: " + ", ".join(each.path for each in found)
        yield _bind(context, rendered, found, container.image_id, why, container.id)


def absent(context: ReconcileContext, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """What of a running box's mounts is not there. One that is made otherwise has no places for them."""
    if container.state is not State.RUNNING or container.config_hash != rendered.config_hash:
        return ()
    found = missing(wanted(context, rendered), container.inside, container.bound)
    later = waiting(context, container, rendered) if found else ()
    return tuple(each for each in found if each not in later)


def waiting(context: ReconcileContext, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """What the named template has instead of something that is bound: bound at the next start."""
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


def _is_own(spec: SandboxSpec, mount: Mount, bound: Bound) -> bool:
    """Whether it is the workspace that the sandbox itself names, or names no more."""
    if mount.kind == "volume":
        named = spec.workspace.volume if spec.workspace else None
        return named is not None and named.name == mount.source and not mount.claimed_by
    return mount.kind == "host" or (mount.kind == "memory" and not bound.in_memory)


def changed(context: ReconcileContext, container: Container, rendered: Rendered) -> str:
    """Why a container has to be replaced, because something else is bound there than its spec asks for now."""
    if context.obj.kind != "Sandbox" or container.config_hash != rendered.config_hash:
        return ""
    later = waiting(context, container, rendered)
    asked = {each.path: each for each in rendered.config.mounts if each not in later}
    other = [
        each
        for each in container.bound
        if each.path in asked and str(asked[each.path]) != each.mount and not resized(each, asked[each.path])
    ]
    return f"bound {other[0].mount}, wanted {asked[other[0].path]}" if other else ""


def as_bound(context: ReconcileContext, config: ContainerConfig) -> ContainerConfig:
    """The config with its volumes as large as they are bound: what has no room to grow stays as it is."""
    bound = {each.path: each for each in context.container.bound} if context.container is not None else {}
    kept = [
        replace(each, size_bytes=bound[each.path].size_bytes)
        if each.path in bound and resized(bound[each.path], each)
        else each
        for each in config.mounts
    ]
    return replace(config, mounts=tuple(kept))


def passing(snapshot: Snapshot, sandbox: Sandbox) -> tuple[str, ...]:
    """The volumes that are to go with a sandbox: those that it says so of, and that no other one of them all names."""
    spec, template = sandbox.spec, sandbox.template
    if sandbox.obj.deleted_at is None or sandbox.obj.kind != "Sandbox" or spec is None or template is None:
        return ()
    going = {each.source for each in volumes(spec, template, sandbox.obj.name) if each.passing}
    for other in snapshot.sandboxes.values() if going else ():
        if other.obj.namespace == sandbox.obj.namespace and other.obj.uid != sandbox.obj.uid:
            going -= _kept_by(other)
    return tuple(sorted(going))


def _kept_by(other: Sandbox) -> set[str]:
    """The volumes that another one keeps; of two that go at a time neither keeps what both let go."""
    if other.spec is None or other.template is None:
        return set()
    gone = other.obj.deleted_at is not None
    found = volumes(other.spec, other.template, other.obj.name)
    return {each.source for each in found if not (gone and each.passing)}


def with_it(context: ReconcileContext) -> Iterator[Action]:
    """What takes the volumes away that go with a sandbox of which all else is gone."""
    if context.volumes and not context.memory.reclaimed:
        obj, why = context.obj, "their reclaimPolicy is Delete"
        yield RemoveVolumes(
            obj.uid, container_name(obj.name, obj.uid), obj.namespace, context.volumes, why, claimed_by=obj.name
        )


def unready(context: ReconcileContext) -> tuple[str, str]:
    """The reason and the words why a box is not ready before all that it asks for is bound."""
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
) -> BindMounts:
    config = rendered.config
    return BindMounts(
        uid=context.obj.uid,
        name=config.name,
        namespace=context.obj.namespace,
        image=image,
        user=config.user,
        slots=config.slots,
        mounts=mounts,
        why=why,
        container_id=container_id,
    )
