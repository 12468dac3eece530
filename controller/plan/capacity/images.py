"""Which images of ours nothing needs any more. Pure: what the engine and the store hold in, what is due out.

An image is needed while a container, a record (the image pinned for a sandbox, so that it can be made anew) or any
stored spec speaks of it: sandboxes, templates, and with them pools. Only what is superseded goes unless the operator
says otherwise: a named image was put there by somebody, who may want it next.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime.images import HostImage
from controller.policy.network import egress


@dataclass(frozen=True, slots=True)
class PruneRules:
    """`what` goes: images without a name (superseded), every unused one of ours (unused), or none; and how late."""

    what: Literal["superseded", "unused", "none"] = "superseded"
    grace_seconds: float = 86400.0


@dataclass(frozen=True, slots=True)
class Pruning:
    """`since` is when each image was first seen unused, by its id (Unix seconds); `due` are to go now."""

    since: Mapping[str, float]
    due: tuple[HostImage, ...] = ()


def prune(
    images: Iterable[HostImage],
    snapshot: Snapshot,
    specs: Iterable[Mapping[str, Any]],
    before: Mapping[str, float],
    rules: PruneRules,
) -> Pruning:
    """What is unused, since when, and what of it is due. A blind look, or a store put back, ends every delay."""
    if snapshot.observed.blind or snapshot.observed.revision == 0 or snapshot.sweep.withheld or rules.what == "none":
        return Pruning({})
    ids, names = _held(snapshot), {egress.IMAGE, *(name for each in specs for name in images_named(each))}
    unused = [
        each
        for each in images
        if (rules.what == "unused" or not each.names)
        and each.id not in ids
        and not any(_means(name, each) for name in names)
    ]
    since = {each.id: min(before.get(each.id, snapshot.now), snapshot.now) for each in unused}
    return Pruning(since, tuple(each for each in unused if snapshot.now - since[each.id] >= rules.grace_seconds))


def images_named(spec: Any) -> Iterator[str]:
    """Every `image` in a stored spec, however deep: a kind that comes later counts as well."""
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            if key == "image" and isinstance(value, str):
                yield value
            else:
                yield from images_named(value)
    elif isinstance(spec, Sequence) and not isinstance(spec, str):
        for each in spec:
            yield from images_named(each)


def _held(snapshot: Snapshot) -> set[str]:
    """The ids of images that containers are made of, or that are pinned for what may be made anew."""
    seen = {each.image_id for group in snapshot.observed.containers.values() for each in group}
    return seen | {each.memory.image_id for each in snapshot.instances.values()}


def _means(name: str, image: HostImage) -> bool:
    """Whether a spec's name may mean this image: by name, by digest, or by id, whole or cut short."""
    plain = name.removeprefix("docker.io/").removeprefix("library/")
    _, _, digest = plain.partition("@")
    if digest:
        return digest == image.id or any(each.endswith(f"@{digest}") for each in image.digests)
    hexadecimal = plain.removeprefix("sha256:")
    return plain in image.names or f"{plain}:latest" in image.names or image.id.startswith(f"sha256:{hexadecimal}")
