"""What is bound into a box: all of it before each start; what is missing while it runs, as in one just claimed, then.

Another folder than the one that is bound needs a new container: whoever has files open in the old one would keep them.
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.common.labels import container_name
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import Action
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import BindMounts, Mount, RemoveVolumes
from controller.plan.common.reconcile_context import Case
from controller.policy.attest.mounted import missing, resized
from controller.policy.mounts import volumes
from controller.policy.sandbox import Rendered

REASON = "MountsMissing"


def wanted(case: Case, rendered: Rendered) -> tuple[Mount, ...]:
    """What is to be bound. A pool's member is nobody's yet: its places stay empty."""
    return rendered.config.mounts if case.obj.kind == "Sandbox" else ()


def before_start(case: Case, rendered: Rendered, image: str, why: str) -> Iterator[Action]:
    """Places and mounts made anew: they are gone with the host's last boot, and folders may have been replaced."""
    if rendered.config.slots:
        yield _bind(case, rendered, wanted(case, rendered), image, why)


def repair(case: Case, container: Container, rendered: Rendered) -> Iterator[Action]:
    """What is missing in a box that runs."""
    found = absent(case, container, rendered)
    if found:
        why = "not bound: " + ", ".join(each.path for each in found)
        yield _bind(case, rendered, found, container.image_id, why, container.id)


def absent(case: Case, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """What of a running box's mounts is not there. One that is made otherwise has no places for them."""
    if container.state is not State.RUNNING or container.config_hash != rendered.config_hash:
        return ()
    return missing(wanted(case, rendered), container.inside, container.bound)


def changed(case: Case, container: Container, rendered: Rendered) -> str:
    """Why a container has to be replaced, because something else is bound there than its spec asks for now."""
    if case.obj.kind != "Sandbox" or container.config_hash != rendered.config_hash:
        return ""
    asked = {each.path: each for each in rendered.config.mounts}
    other = [
        each
        for each in container.bound
        if each.path in asked and str(asked[each.path]) != each.mount and not resized(each, asked[each.path])
    ]
    return f"bound {other[0].mount}, wanted {asked[other[0].path]}" if other else ""


def as_bound(case: Case, config: ContainerConfig) -> ContainerConfig:
    """The config with its volumes as large as they are bound: what has no room to grow stays as it is."""
    bound = {each.path: each for each in case.container.bound} if case.container is not None else {}
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
    going = {each.source for each in volumes(spec, template) if each.passing}
    for other in snapshot.sandboxes.values() if going else ():
        if other.obj.namespace == sandbox.obj.namespace and other.obj.uid != sandbox.obj.uid:
            going -= _kept_by(other)
    return tuple(sorted(going))


def _kept_by(other: Sandbox) -> set[str]:
    """The volumes that another one keeps; of two that go at a time neither keeps what both let go."""
    if other.spec is None or other.template is None:
        return set()
    gone = other.obj.deleted_at is not None
    return {each.source for each in volumes(other.spec, other.template) if not (gone and each.passing)}


def with_it(case: Case) -> Iterator[Action]:
    """What takes the volumes away that go with a sandbox of which all else is gone."""
    if case.volumes and not case.memory.reclaimed:
        name = container_name(case.obj.name, case.obj.uid)
        yield RemoveVolumes(case.obj.uid, name, case.obj.namespace, case.volumes, "their reclaimPolicy is Delete")


def unready(case: Case) -> tuple[str, str]:
    """The reason and the words why a box is not ready before all that it asks for is bound."""
    container, rendered = case.container, case.rendered
    found = absent(case, container, rendered) if container is not None and rendered is not None else ()
    smaller = {each.path: each for each in container.bound} if container is not None else {}
    found = tuple(each for each in found if each.path not in smaller or not resized(smaller[each.path], each))
    return (REASON, "not bound yet: " + ", ".join(map(str, found))) if found else ("", "")


def _bind(
    case: Case, rendered: Rendered, mounts: tuple[Mount, ...], image: str, why: str, container_id: str = ""
) -> BindMounts:
    config = rendered.config
    return BindMounts(
        uid=case.obj.uid,
        name=config.name,
        namespace=case.obj.namespace,
        image=image,
        user=config.user,
        slots=config.slots,
        mounts=mounts,
        why=why,
        container_id=container_id,
    )
