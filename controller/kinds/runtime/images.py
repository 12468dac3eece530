"""Images on a host that Paddock's own recipes (images/) built."""

from dataclasses import dataclass

OURS = "paddock.dev/recipe"  # the label that images/build.sh gives; an image without it is never removed


@dataclass(frozen=True, slots=True)
class HostImage:
    """One image. Without `names` it is superseded: a newer build took its name."""

    id: str
    names: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
