"""Images that the operator allows sandboxes to use. engine/images/image_checks.py checks their contents."""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller.policy.addresses import is_public

_DIGEST = "@sha256:"
# Names that hosts give their own loopback addresses; and a last label that makes a name an address, as browsers and
# inet_aton(3) read it: 127.0.0.1, 127.1, 2130706433, 0x7f.1.
_OWN_NAMES = ("localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")
_DEFAULT_REGISTRIES = ("", "docker.io", "index.docker.io", "registry-1.docker.io")
_HTTPS = 443
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class ImageRules:
    """The operator's image rules. `pinned`: only by digest.

    `allowed_patterns` are of names (`paddock/*`, `registry.example/team/*`); none: any. A pattern is matched with
    the name as the spec writes it, and without its tag and digest. `local_registries` are the allowed registries that
    are addresses or this host itself, as image names have them.
    """

    allowed_patterns: tuple[str, ...] = ()
    pinned: bool = False
    local_registries: tuple[str, ...] = ()


ANY_IMAGE = ImageRules()
# Names that images/build.sh builds, as paddock/NAME:1.
RECIPES = (
    *(
        "base",
        "python",
        "data",
        "ide",
        "node",
        "bun",
        "deno",
        "toolchain",
        "egress",
        "agent",
        "model-tiny",
        "tiny",
        "daemon",
    ),
)
_TAG_OF_TINY = "paddock/test-tiny:1"


def tag_of(recipe: str) -> str:
    """Return the image that a recipe of images/build.sh builds."""
    return _TAG_OF_TINY if recipe == "tiny" else f"paddock/{recipe}:1"


_RECIPE_OF = {tag_of(name): name for name in RECIPES}


def recipe_of(image: str) -> str:
    """Return the recipe of images/build.sh that builds an image; "" if none does."""
    return _RECIPE_OF.get(_short_name(image), "")


def has_recipe(image: str) -> bool:
    """Return True if the daemon builds that image by itself: not its own image, and not that of its tests."""
    return recipe_of(image) not in ("", "daemon", "tiny")


def remedy(image: str) -> str:
    """Return how to get an image that is not on the host; "" for one of Paddock's own names that nothing builds."""
    short_name = _short_name(image)
    recipes = _RECIPE_OF
    if short_name in recipes:
        return f"build it (`images/build.sh {recipes[short_name]}`)"
    if f"{short_name}:1" in recipes:
        return f"write {short_name}:1, which `images/build.sh {recipes[f'{short_name}:1']}` builds"
    if is_own(image):
        return "no image of Paddock's has that name; choose one that is here (`paddock image list`)"
    return f"get it (`paddock image pull {image}`), or build it (`paddock image build -t {image} FOLDER`)"


def image_refusals(image: str, rules: ImageRules) -> Iterator[str]:
    """Yield every reason why the operator refuses this image."""
    plain = _without_tag(image)
    if rules.allowed_patterns and not any(
        fnmatch.fnmatchcase(name, pattern) for pattern in rules.allowed_patterns for name in (image, plain)
    ):
        yield f"`{image}` is not an image that this host's operator allows ({', '.join(rules.allowed_patterns)})"
    if rules.pinned and _DIGEST not in image:
        yield f"this host's operator requires images by digest; write `{plain}@sha256:...`"
    registry = registry_of(image)
    if is_local(registry) and not _is_listed(registry, rules):
        yield (
            f"`{registry}` is an address, or this host itself, where the engine would ask in the host's name; use a "
            "registry's name, or have the operator list it (setting `local_registries`)"
        )


def is_vouched_for(image: str, rules: ImageRules) -> bool:
    """Return True if the operator chose the image's registry, or the engine did: it may be at any address."""
    registry = registry_of(image)
    return registry in _DEFAULT_REGISTRIES or _is_listed(registry, rules)


def address_refused(registry: str, addresses: Iterable[str]) -> str:
    """Return why the engine is not sent to a registry that resolves to these addresses; "" if it is."""
    private = [address for address in addresses if not is_public(address)]
    if not private:
        return ""
    message = f"the registry `{registry}` is at {', '.join(private)}, which is not a public address"
    return f"{message}; list it to allow that (setting `local_registries`)"


def registry_server(registry: str) -> tuple[str, int]:
    """Return the host and the port of a registry."""
    host, _, port = registry.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else (registry.strip("[]"), _HTTPS)


def is_own(image: str) -> bool:
    """Return True for one of Paddock's own names. No registry may fill them: they are built on the host."""
    return _short_name(image).startswith("paddock/")


def would_replace(image: str, digests: Iterable[str]) -> bool:
    """Return True if a pull of this name would replace an image that came from no registry.

    `digests` are those of the image that has the name now: one by repository it was pulled from or pushed to.
    """
    name = _short_name(_without_tag(image))
    return _DIGEST not in image and not any(_short_name(digest.partition("@")[0]) == name for digest in digests)


def registry_of(image: str) -> str:
    """Return the registry that the engine asks for an image, with its port; "" for its default one."""
    first, slash, _ = image.partition("/")
    is_registry = bool(slash) and ("." in first or ":" in first or first.lower() == "localhost" or _cased(first))
    return first if is_registry else ""


def is_local(registry: str) -> bool:
    """Return True if that is an address, or a name for the asking host itself."""
    host = registry.lower().partition(":")[0].rstrip(".")
    last = host.rpartition(".")[2]
    return bool(_NUMBER.fullmatch(last)) or host in _OWN_NAMES or host.endswith(".localhost")


def _cased(first: str) -> bool:
    """Return True if newer engines read this as a registry: names of images have no capitals."""
    return first != first.lower()


def _is_listed(registry: str, rules: ImageRules) -> bool:
    return registry in rules.local_registries or any(
        pattern.startswith(f"{registry}/") for pattern in rules.allowed_patterns
    )


def _short_name(image: str) -> str:
    """Return the name without the default registry and its folder for official images."""
    for beginning in ("index.docker.io/", "docker.io/", "registry-1.docker.io/"):
        image = image.removeprefix(beginning)
    return image.removeprefix("library/")


def _without_tag(image: str) -> str:
    """Return `registry:5000/a/b` of `registry:5000/a/b:1@sha256:...`."""
    folder, slash, last = image.partition("@")[0].rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"
