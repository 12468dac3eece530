"""The images on a host that Paddock's own recipes made (images/), and the port by which unused ones are removed."""

from dataclasses import dataclass

OURS = "paddock.dev/recipe"  # the label that images/build.sh gives; an image without it is never removed


@dataclass(frozen=True, slots=True)
class HostImage:
    """One image. Without `names` it is superseded: what bore its name was built anew since."""

    id: str
    names: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
