"""The files and images of this checkout that bills of materials and audits are about."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from deploy.supply.components import Component, from_package_lock, from_requirements, from_vendored

ROOT = Path(__file__).parents[2]
Reader = Callable[[str, str], Iterator[Component]]
_PATTERNS: Mapping[str, Reader] = {
    "requirements*.lock": from_requirements,
    "tests/mcp/*.lock": from_requirements,
    "tests/mcp/node/package-lock.json": from_package_lock,
    "images/**/requirements.lock": from_requirements,
    "images/**/package-lock.json": from_package_lock,
    "controller/api/panel/static/vendor/manifest.json": from_vendored,
}
FILES: Mapping[str, Reader] = {
    str(file.relative_to(ROOT)): reader for pattern, reader in _PATTERNS.items() for file in sorted(ROOT.glob(pattern))
}
UP = ("base", "python")  # every Paddock stands on these


def of_file(file: str) -> list[Component]:
    """Return the components that a file of this checkout pins."""
    return list(FILES[file]((ROOT / file).read_text(), file))


def images() -> list[str]:
    """Return the names of the recipes, those first that others stand on."""
    names = sorted(each.parent.name for each in ROOT.glob("images/*/Dockerfile"))
    return [*UP, *(each for each in names if each not in UP)]


def tag(name: str) -> str:
    """Return the image that a recipe makes (images/build.sh: tag_of)."""
    return "paddock/test-tiny:1" if name == "tiny" else f"paddock/{name}:1"


def recipe(image: str) -> str:
    """Return the file that makes an image."""
    return next((f"images/{each}/Dockerfile" for each in images() if tag(each) == image), "images/build.sh")
