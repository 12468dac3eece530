"""The images on a host that Paddock's own recipes made (images/), and the port by which unused ones are removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

OURS = "paddock.dev/recipe"  # the label that images/build.sh gives; an image without it is never removed


@dataclass(frozen=True, slots=True)
class HostImage:
    """One image. Without `names` it is superseded: what bore its name was built anew since."""

    id: str
    names: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()


class Images(Protocol):
    """The engine's images, as far as they are ours."""

    def ours(self) -> Sequence[HostImage] | None:
        """Those that bear our label; None: they can't be looked at now. Never raises."""
        ...

    def remove(self, image: HostImage) -> str:
        """Remove one, if it still bears our label and no container is made of it.

        Empty when it is gone, else why not. Never raises.
        """
        ...
