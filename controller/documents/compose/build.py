"""`build:` of a Compose service: the image that `paddock compose up` builds from a folder beside the file."""

import posixpath
from dataclasses import dataclass, field

from controller.documents.compose.element import Element, read_pairs

_LAST = "the last stage of the Dockerfile is built; put this one into a Dockerfile of its own"
_REFUSED = {
    "target": _LAST,
    "dockerfile_inline": "write it into a file, and name that one in `dockerfile:`",
    "additional_contexts": "one folder is sent; copy what the build needs into it",
    "ssh": "a build reaches no other host; remove it",
    "secrets": "a build gets no secrets; remove it",
    "privileged": "a build is never privileged; remove it",
    "entitlements": "a build is never privileged; remove it",
    "extra_hosts": "a build reaches no other host; remove it",
}
_HARMLESS = (
    "cache_from",
    "cache_to",
    "labels",
    "network",
    "no_cache",
    "platforms",
    "pull",
    "shm_size",
    "tags",
    "isolation",
)


@dataclass(frozen=True, slots=True)
class Build:
    """An image to build: its name, the folder as the file writes it, the Dockerfile in there, and the arguments."""

    service: str
    image: str
    context: str
    dockerfile: str = "Dockerfile"
    arguments: dict[str, str] = field(default_factory=dict)


def read_build(element: Element, service: str, image: str) -> Build:
    """Return the build; problems for what no build here can do."""
    if element.is_text:
        return Build(service, image, _folder(element))
    context, dockerfile, args = (element.child(name) for name in ("context", "dockerfile", "args"))
    element.check_keys("context", "dockerfile", "args", *_HARMLESS, **_REFUSED)
    arguments = {}
    for name, value, has_value in read_pairs(args) if args is not None else ():
        if has_value:
            arguments[name] = value.text_or_flag() or ""
    path = (dockerfile.text() if dockerfile is not None else None) or "Dockerfile"
    if dockerfile is not None and (path.startswith(("/", "../")) or posixpath.normpath(path).startswith("..")):
        dockerfile.refuse("must be below the folder of `context:`; move it there")
    return Build(service, image, _folder(context) if context is not None else ".", posixpath.normpath(path), arguments)


def _folder(element: Element) -> str:
    text = element.text() or "."
    if "://" in text or text.startswith("git@"):
        element.refuse("a build fetches nothing; check the project out, and name its folder")
    return text
