"""Pruning of unused images, and of agents' runtimes. Pure: from what the engine and the store hold to what is removed.

An image is in use while a container, a record (the image pinned for a sandbox, so that it can be created again) or any
stored spec refers to it: sandboxes, templates, and with them pools. By default only superseded images are removed:
somebody named the others, and may want them next. Images of installed packages are removed, too: Paddock named them,
and each MCPServer that needs one says so in its status.

An agent's runtime is superseded once a newer image has the agent's name, and unused once no container mounts it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from controller.kinds.observed.observed import Observation
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.runtime import agent
from controller.kinds.runtime.agent import AgentRuntime
from controller.kinds.runtime.images import PACKAGES, HostImage, owner_mark
from controller.policy.network import egress

_RUNTIME = "agent/"


@dataclass(frozen=True, slots=True)
class PruneRules:
    """Rules of pruning.

    `what`: images without a name and those of packages (superseded), every unused one of ours (unused), or none;
    after how long. Images of packages are those of this `instance_id`.
    """

    what: Literal["superseded", "unused", "none"] = "superseded"
    grace_seconds: float = 86400.0
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class Pruning:
    """Result of a pruning pass.

    `since` is when each image and runtime was first seen unused, by id (Unix seconds); `due` and `runtimes` are to be
    removed.
    """

    since: Mapping[str, float]
    due: tuple[HostImage, ...] = ()
    runtimes: tuple[AgentRuntime, ...] = ()


def prune(
    images: Iterable[HostImage],
    snapshot: Snapshot,
    specs: Iterable[Mapping[str, Any]],
    before: Mapping[str, float],
    rules: PruneRules,
    runtimes: Iterable[AgentRuntime] = (),
) -> Pruning:
    """Return the unused images and runtimes, since when, and those that are due.

    A blind pass or a restored store resets every delay.
    """
    if (
        snapshot.observed.blind
        or snapshot.observed.revision == 0
        or snapshot.rules.sweep.withheld
        or rules.what == "none"
    ):
        return Pruning({})
    # It is iterated twice.
    runtimes = tuple(runtimes)
    ids = _used_images(snapshot.instances.values(), snapshot.observed) | {runtime.image for runtime in runtimes}
    names = {egress.IMAGE, agent.IMAGE, *(name for spec in specs for name in images_named(spec))}
    unused = [
        image
        for image in images
        if _is_ours(image, rules) and image.id not in ids and not any(_means(name, image) for name in names)
    ]
    # While the current runtime is unknown, none counts as old.
    present = snapshot.observed.facts.agent
    old = {
        _RUNTIME + runtime.image: runtime
        for runtime in runtimes
        if present and runtime.image != present and not runtime.is_used
    }
    unused_ids = (*(image.id for image in unused), *old)
    # A clock that was set back must not leave times in the future, which would postpone the removal.
    since = {key: min(before.get(key, snapshot.now), snapshot.now) for key in unused_ids}
    due = {key for key, at in since.items() if snapshot.now - at >= rules.grace_seconds}
    return Pruning(
        since,
        tuple(image for image in unused if image.id in due),
        tuple(runtime for key, runtime in old.items() if key in due),
    )


def _is_ours(image: HostImage, rules: PruneRules) -> bool:
    """Return True if the rules allow to remove the image once nothing needs it."""
    of_packages = [name for name in image.names if name.startswith(PACKAGES)]
    if not of_packages:
        return rules.what == "unused" or not image.names
    mark = owner_mark(rules.instance_id)
    return len(of_packages) == len(image.names) and all(name.endswith(mark) for name in of_packages)


def images_named(spec: Any) -> Iterator[str]:
    """Yield every `image` in a stored spec or status, at any depth: kinds of later versions count as well."""
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            if key == "image" and isinstance(value, str):
                yield value
            else:
                yield from images_named(value)
    elif isinstance(spec, Sequence) and not isinstance(spec, str):
        for element in spec:
            yield from images_named(element)


def _used_images(instances: Iterable[Instance], observed: Observation) -> set[str]:
    """Return the ids of images that containers are made of, or that are pinned for containers to come."""
    image_ids = {container.image_id for containers in observed.containers.values() for container in containers}
    return image_ids | {instance.state.container.image_id for instance in instances}


def _means(name: str, image: HostImage) -> bool:
    """Return True if a spec's name may refer to this image: by name, by digest, or by (shortened) id."""
    plain = name.removeprefix("docker.io/").removeprefix("library/")
    _, _, digest = plain.partition("@")
    if digest:
        return digest == image.id or any(each.endswith(f"@{digest}") for each in image.digests)
    hexadecimal = plain.removeprefix("sha256:")
    return plain in image.names or f"{plain}:latest" in image.names or image.id.startswith(f"sha256:{hexadecimal}")
