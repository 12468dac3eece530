"""Images of hosts, for placements: a sandbox is asked for where its images are, if they are on any host. Pure.

A host without an image may still pull it. So where none of the hosts with it has room for some seconds, all may have
the sandbox; unless one gave it back because it could not pull: then only those with the image come into question.
A host that has listed no images yet may have any: until all have, images choose no host.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from controller.kinds.host import StoredHost
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import IMAGE_NEEDED
from controller.kinds.runtime import agent
from controller.kinds.runtime.container import stable_hash
from controller.kinds.runtime.images import reference
from controller.kinds.sandbox import Template
from controller.policy.levels.levels import Level
from controller.policy.network import egress

LABEL = "image.paddock.dev/"
_DIGITS = 16


def images_of(host: StoredObject) -> frozenset[str]:
    """Return the images that a host reports, as references."""
    return frozenset(map(str, host.status.get("images") or ()))


def has_listed_images(host: StoredObject) -> bool:
    """Return True if a host has said which images it has, be it none."""
    return host.status.get("images") is not None


def image_labels(host: StoredObject) -> dict[str, str]:
    """Return a host's labels, one for each of its images."""
    return dict.fromkeys(map(_label, images_of(host)), "true")


def images_needed(template: Template, level: Level | None) -> tuple[str, ...]:
    """Return the images that a host needs to start such a sandbox, as references."""
    images = [template.image]
    images += [egress.IMAGE] if level is not None and level.network == "sealed" else []
    images += [agent.IMAGE] if template.agent is not None else []
    return tuple(image for image in map(reference, images) if image)


@dataclass(frozen=True, slots=True)
class ImagePlaces:
    """Images of each host that may get something new. `anywhere` may have hosts without their images, by uid.

    `all_listed`: every one of these hosts has said which images it has.
    """

    hosts: tuple[frozenset[str], ...] = ()
    anywhere: Collection[str] = field(default_factory=frozenset)
    all_listed: bool = True

    def selector(self, obj: StoredObject, uid: str, template: Template, level: Level | None) -> Mapping[str, str]:
        """Return the labels of hosts that have the images; none if no host has them all, or any will do."""
        needed = images_needed(template, level)
        if not any(images.issuperset(needed) for images in self.hosts):
            return {}
        needed_image = obj.status.get(IMAGE_NEEDED)
        if (uid in self.anywhere or not self.all_listed) and needed_image not in needed:
            return {}
        return dict.fromkeys(map(_label, needed), "true")


def selects_images(selector: Iterable[str]) -> bool:
    """Return True if a selector has labels of images."""
    return any(name.startswith(LABEL) for name in selector)


def keeping_images(selector: Mapping[str, str], placed: Mapping[str, str]) -> Mapping[str, str]:
    """Return a selector with the labels of images that it was placed by: what is placed stays, whatever has images."""
    placement_labels = {name: value for name, value in placed.items() if name.startswith(LABEL)}
    return {name: value for name, value in selector.items() if not name.startswith(LABEL)} | placement_labels


def other_with(hosts: Iterable[StoredHost], own_host: str, image: str) -> str:
    """Return the name of a host beside this one that has the image; "" if none is known to."""
    name = reference(image)
    other_hosts = (host.obj.name for host in hosts if host.obj.name != own_host and name in images_of(host.obj))
    return min(other_hosts, default="") if name else ""


def _label(image: str) -> str:
    return f"{LABEL}{stable_hash([image])[:_DIGITS]}"
