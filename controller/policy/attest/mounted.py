"""Comparison of a sandbox's bind mounts with the requested ones, as the kernel shows them from inside.

An unused slot is empty and read-only, and an unmounted one is not there: both are narrower than any mount for it.
Without the record of what was bound, a mount in a slot is neither right nor wrong: it is unjudged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from controller.kinds.common.exec_paths import mount_place
from controller.kinds.observed.inside import InsideState, ObservedMount
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import EMPTY_BYTES, BoundMount, Mount
from controller.policy.attest.facts import Fact


def as_requested(config: ContainerConfig, inside: InsideState) -> InsideState:
    """Return the state with its mounts at the paths of the config: one at /var/run/x is seen at /run/x."""
    paths = {*(folder.path for folder in config.tmpfs), *(slot.path for slot in config.slots)}
    observed = {mount.path for mount in inside.mounts}  # where /var/run is a folder, each has its own path
    path_by_place = {
        mount_place(path): path for path in paths if mount_place(path) not in paths and path not in observed
    }
    if not path_by_place:
        return inside
    mounts = (replace(mount, path=path_by_place.get(mount.path, mount.path)) for mount in inside.mounts)
    return replace(inside, mounts=tuple(mounts))


def facts(
    config: ContainerConfig, inside: InsideState, bound: Iterable[BoundMount], *, recorded: bool = True
) -> Iterator[Fact]:
    """Yield one comparison for each slot; without a record, of an unjudged mount by its flags alone."""
    inside = as_requested(config, inside)
    bound_by_path, mount_by_path = (
        {binding.path: binding for binding in bound},
        {mount.path: mount for mount in inside.mounts},
    )
    unjudged_paths = () if recorded else unjudged(config, inside, bound_by_path.values())
    for slot in config.slots:
        if slot.path in unjudged_paths:
            mount = mount_by_path[slot.path]
            yield Fact(slot.path, _describe(mount), "nosuid nodev", holds=mount.nosuid and mount.nodev)
        else:
            yield _fact(slot.path, bound_by_path.get(slot.path), mount_by_path.get(slot.path))


def unjudged(config: ContainerConfig, inside: InsideState, bound: Iterable[BoundMount]) -> tuple[str, ...]:
    """Return the slots with a mount of which nothing is recorded."""
    inside = as_requested(config, inside)
    bound_paths, mount_by_path = {binding.path for binding in bound}, {mount.path: mount for mount in inside.mounts}
    paths = (slot.path for slot in config.slots if slot.path in mount_by_path and slot.path not in bound_paths)
    return tuple(path for path in paths if not is_empty(mount_by_path[path]))


def _fact(path: str, bound: BoundMount | None, mount: ObservedMount | None) -> Fact:
    expectation = bound.mount.removeprefix(f"{path} from ") if bound else "nothing"
    if mount is None:
        return Fact(path, "no mount", expectation, holds=True)
    if is_empty(mount):
        return Fact(path, "nothing yet", expectation, holds=True)
    holds = (
        bound is not None
        and mount.origin == (bound.origin or mount.origin)
        and mount.nosuid
        and mount.nodev
        and (not mount.writable or not bound.read_only)
    )
    return Fact(path, expectation if holds else _describe(mount), f"{expectation} nosuid nodev", holds=holds)


def _describe(mount: ObservedMount) -> str:
    flags = "".join(f" {name}" for name in ("nosuid", "nodev") if getattr(mount, name))
    return f"{mount.kind} {mount.origin} {'read-write' if mount.writable else 'read-only'}{flags}"


def is_empty(mount: ObservedMount) -> bool:
    """Return True if nothing is bound at a slot, as in a new container."""
    return mount.kind == "tmpfs" and not mount.writable and mount.size_bytes == EMPTY_BYTES


def resized(bound: BoundMount, mount: Mount) -> bool:
    """Return True if a mount differs only in its volume's size, which is changed in place."""
    if mount.kind != "volume" or not bound.size_bytes or bound.size_bytes == mount.size_bytes:
        return False
    return bound.mount == str(replace(mount, size_bytes=bound.size_bytes))


def missing(
    mounts: Iterable[Mount], inside: InsideState | None, bound: Iterable[BoundMount], *, recorded: bool = True
) -> tuple[Mount, ...]:
    """Return the mounts that are missing: never made, or unmounted inside. Without a record, only the latter."""
    bound_mounts = {binding.path: binding.mount for binding in bound if binding.origin}  # else it was only begun
    mount_by_path = {mount.path: mount for mount in inside.mounts} if inside is not None and not inside.unread else None
    return tuple(
        mount
        for mount in mounts
        if (recorded and bound_mounts.get(mount.path) != str(mount))
        or (
            mount_by_path is not None
            and _is_missing(mount_by_path.get(mount.path, mount_by_path.get(mount_place(mount.path))))
        )
    )


def has_moved(inside: InsideState, bound: Iterable[BoundMount]) -> bool:
    """Return True if a mount has another source than was noted: a folder may have been renamed."""
    origins = {mount.path: mount.origin for mount in inside.mounts if not is_empty(mount)}
    return any(
        binding.origin
        and origins.get(binding.path, origins.get(mount_place(binding.path), binding.origin)) != binding.origin
        for binding in bound
    )


def _is_missing(mount: ObservedMount | None) -> bool:
    return mount is None or is_empty(mount)
