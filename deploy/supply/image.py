"""The components of a container image, read from its exported file system. Nothing of the image is run.

So an image without a shell or a package manager is read, too. Records of dpkg are in `var/lib/dpkg/status`, or, where
an image has only some of its files, one file a package in `var/lib/dpkg/status.d`, as distroless images have it.
"""

import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import IO, Any

from deploy.supply.components import (
    DISTRO,
    Component,
    from_dpkg,
    from_npm,
    from_python,
    merged,
    of_files,
)

_MOST_BYTES = 64 << 20  # of one record
_METADATA = re.compile(r"\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info)$")
_PACKAGE = re.compile(r"(?:^|/)node_modules/(?:@[^/]+/)?[^/@][^/]*/package\.json$")
_OWNED = re.compile(r"^/(.*(?:\.dist-info/METADATA|\.egg-info(?:/PKG-INFO)?|/package\.json))$", re.MULTILINE)


class NoImage(Exception):
    """The engine has no such image, or does not answer."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the engine: its name, id, time of creation and components."""

    name: str
    id: str
    created: str
    components: tuple[Component, ...]


@dataclass(slots=True)
class _Records:
    """Records of package managers in one file system."""

    dpkg: list[str] = field(default_factory=list)
    python: dict[str, str] = field(default_factory=dict)
    npm: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)  # path: Debian package
    distro: str = DISTRO

    def components(self) -> Iterator[Component]:
        for text in self.dpkg:
            yield from from_dpkg(text, self.distro)
        for reader, found in ((from_python, self.python), (from_npm, self.npm)):
            for place, text in found.items():
                for each in reader(text, place):
                    yield replace(each, owner=self.owners.get(place, ""))


def inspected(name: str) -> dict[str, Any]:
    """Return an image as the engine reports it. Raises NoImage."""
    try:
        done = subprocess.run(["docker", "image", "inspect", name], capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoImage(f"docker can't be run: {error}") from error
    if done.returncode != 0:
        raise NoImage(done.stderr.strip().removeprefix("Error: ") or f"{name} is not on this engine")
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def read(name: str) -> Image:
    """Return an image with its components. Raises NoImage."""
    facts = inspected(name)
    with _exported(facts["Id"]) as stream:
        found = merged(read_records(stream).components())
    if not found:
        with _exported(facts["Id"]) as stream:
            found = merged(of_files(_hashes(stream)))
    return Image(name, facts["Id"], facts["Created"], tuple(found))


@contextmanager
def _exported(image: str) -> Iterator[IO[bytes]]:
    """Yield the file system of an image as a tar stream."""
    # Any word will do: the container is never started.
    made = subprocess.run(
        ["docker", "create", "--network", "none", image, "x"], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise NoImage(made.stderr.strip())
    container = made.stdout.strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
            while process.stdout.read(1 << 20):
                pass
        if process.returncode != 0:
            raise NoImage(f"{image}: its file system could not be exported")
    finally:
        subprocess.run(["docker", "rm", "--volumes", container], capture_output=True, check=False)


def read_records(stream: IO[bytes]) -> _Records:
    """Return what package managers left in a tar stream."""
    found = _Records()
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not member.isfile() or member.size > _MOST_BYTES:
                continue
            name = member.name.removeprefix("./").lstrip("/")
            file = archive.extractfile(member) if _wanted(name) else None
            if file is not None:
                _take(found, name, file.read().decode("utf-8", "replace"))
    return found


def _wanted(name: str) -> bool:
    return (
        name in ("etc/os-release", "usr/lib/os-release", "var/lib/dpkg/status")
        or name.startswith(("var/lib/dpkg/status.d/", "var/lib/dpkg/info/"))
        or _METADATA.search(name) is not None
        or _PACKAGE.search(name) is not None
    )


def _take(found: _Records, name: str, text: str) -> None:
    path = PurePosixPath(name)
    if path.name == "os-release":
        facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        found.distro = f"{facts.get('ID', 'debian').strip(chr(34))}-{facts.get('VERSION_ID', '').strip(chr(34))}"
    elif name == "var/lib/dpkg/status" or (path.parent.name == "status.d" and path.suffix != ".md5sums"):
        found.dpkg.append(text)
    elif name.startswith("var/lib/dpkg/info/"):
        if path.suffix == ".list":
            found.owners.update(dict.fromkeys(_OWNED.findall(text), path.stem.partition(":")[0]))
    elif _METADATA.search(name):
        found.python[name] = text
    elif _PACKAGE.search(name):
        found.npm[name] = text


def _hashes(stream: IO[bytes]) -> dict[str, str]:
    """Return the SHA-256 of each regular file of a tar stream that holds any bytes."""
    found: dict[str, str] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and member.size else None
            if file is not None:
                found[member.name.removeprefix("./")] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
