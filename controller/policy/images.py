"""Images that a sandbox may use, by the operator's rules. engine/docker/image_checks.py looks inside one."""

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

_DIGEST = "@sha256:"


@dataclass(frozen=True, slots=True)
class ImageRules:
    """`allowed` are patterns of names (`paddock/*`, `registry.example/team/*`); none: any. `pinned`: only by digest.

    A pattern is held against the name as the spec writes it, and against the same without its tag and digest.
    """

    allowed: tuple[str, ...] = ()
    pinned: bool = False


ANY_IMAGE = ImageRules()


def refused(image: str, rules: ImageRules) -> Iterator[str]:
    """Every reason why the operator does not let this image in."""
    plain = _without_tag(image)
    if rules.allowed and not any(fnmatch.fnmatchcase(name, each) for each in rules.allowed for name in (image, plain)):
        yield f"`{image}` is none of the images that this host's operator allows ({', '.join(rules.allowed)})"
    if rules.pinned and _DIGEST not in image:
        yield f"this host's operator wants images by digest: write `{plain}@sha256:...`"


def _without_tag(image: str) -> str:
    """`registry:5000/a/b` of `registry:5000/a/b:1@sha256:...`."""
    folder, slash, last = image.partition("@")[0].rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"
