"""Write bills of materials of the images on this engine, and of the files that pin packages."""

from collections.abc import Sequence
from pathlib import Path

from deploy.supply import cyclonedx, image, sources
from deploy.supply.components import merged
from deploy.supply.image import NoImage


def write_image(name: str, folder: Path) -> str:
    """Write the bill of materials of one image; return a line about it. Raises NoImage."""
    found = image.read(name)
    file = folder / f"{name.replace('/', '-').replace(':', '-')}.cdx.json"
    _write(file, cyclonedx.document(found.name, found.components, version=found.id, created=found.created))
    return f"    {name}: {len(found.components)} components, in {file}"


def write_file(name: str, folder: Path) -> str:
    """Write the bill of materials of one lock or manifest; return a line about it."""
    components = merged(sources.of_file(name))
    file = folder / f"{name.replace('/', '-')}.cdx.json"
    _write(file, cyclonedx.document(name, components))
    return f"    {name}: {len(components)} components, in {file}"


def run(images: Sequence[str], folder: Path) -> int:
    """Write those of the named images; without names, of all that are here, and of the files. Return the exit code."""
    if images:
        for each in images:
            print(write_image(each, folder))
        return 0
    for file in sources.FILES:
        print(write_file(file, folder))
    absent = []
    for name in sources.images():
        try:
            print(write_image(sources.tag(name), folder))
        except NoImage:
            absent.append(sources.tag(name))
    if absent:
        print(f"    not on this engine, and left out: {', '.join(absent)}; images/build.sh builds them")
    return 0


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
