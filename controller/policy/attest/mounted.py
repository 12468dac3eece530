"""Comparison of a sandbox's bind mounts with the requested ones, as the kernel shows them from inside.

An unused slot is empty and read-only, and an unmounted one is not there: both are narrower than any mount for it.
Without the record of what was bound, a mount in a slot is neither right nor wrong: it is unjudged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from controller.kinds.observed.inside import InsideState, ObservedMount
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import EMPTY_BYTES, BoundMount, Mount
from controller.policy.attest.facts import Fact


def facts(
    config: ContainerConfig, inside: InsideState, bound: Iterable[BoundMount], *, recorded: bool = True
) -> Iterator[Fact]:
    """Yield one comparison for each slot; without a record, of an unjudged mount by its flags alone."""
    known, found = {each.path: each for each in bound}, {each.path: each for each in inside.mounts}
    unjudged_paths = () if recorded else unjudged(config, inside, known.values())
    for slot in config.slots:
        if slot.path in unjudged_paths:
            mount = found[slot.path]
            yield Fact(slot.path, _words(mount), "nosuid nodev", holds=mount.nosuid and mount.nodev)
        else:
            yield _fact(slot.path, known.get(slot.path), found.get(slot.path))


def unjudged(config: ContainerConfig, inside: InsideState, bound: Iterable[BoundMount]) -> tuple[str, ...]:
    """Return the slots with a mount of which nothing is recorded."""
    known, found = {each.path for each in bound}, {each.path: each for each in inside.mounts}
    paths = (each.path for each in config.slots if each.path in found and each.path not in known)
    return tuple(path for path in paths if not is_empty(found[path]))


def _fact(path: str, bound: BoundMount | None, found: ObservedMount | None) -> Fact:
    asked = bound.mount.removeprefix(f"{path} from ") if bound else "nothing"
    if found is None:
        return Fact(path, "no mount", asked, holds=True)
    if is_empty(found):
        return Fact(path, "nothing yet", asked, holds=True)
    holds = (
        bound is not None
        and found.origin == (bound.origin or found.origin)
        and found.nosuid
        and found.nodev
        and (not found.writable or not bound.read_only)
    )
    return Fact(path, asked if holds else _words(found), f"{asked} nosuid nodev", holds=holds)


def _words(found: ObservedMount) -> str:
    flags = "".join(f" {name}" for name in ("nosuid", "nodev") if getattr(found, name))
    return f"{found.kind} {found.origin} {'read-write' if found.writable else 'read-only'}{flags}"


def is_empty(found: ObservedMount) -> bool:
    """Return True if nothing is bound at a slot, as in a new container."""
    return found.kind == "tmpfs" and not found.writable and found.size_bytes == EMPTY_BYTES


def resized(bound: BoundMount, mount: Mount) -> bool:
    """Return True if a mount differs only in its volume's size, which is changed in place."""
    if mount.kind != "volume" or not bound.size_bytes or bound.size_bytes == mount.size_bytes:
        return False
    return bound.mount == str(replace(mount, size_bytes=bound.size_bytes))


def missing(
    mounts: Iterable[Mount], inside: InsideState | None, bound: Iterable[BoundMount], *, recorded: bool = True
) -> tuple[Mount, ...]:
    """Return the mounts that are missing: never made, or unmounted inside. Without a record, only the latter."""
    known = {each.path: each.mount for each in bound if each.origin}  # else it was only begun
    found = {each.path: each for each in inside.mounts} if inside is not None and not inside.unread else None
    return tuple(
        each
        for each in mounts
        if (recorded and known.get(each.path) != str(each)) or (found is not None and _gone(found.get(each.path)))
    )


def moved(inside: InsideState, bound: Iterable[BoundMount]) -> bool:
    """Return True if a mount has another source than was noted: a folder may have been renamed."""
    found = {each.path: each.origin for each in inside.mounts if not is_empty(each)}
    return any(each.origin and found.get(each.path, each.origin) != each.origin for each in bound)


def _gone(found: ObservedMount | None) -> bool:
    return found is None or is_empty(found)
