"""Components, as the package managers' own records have them: dpkg, Python's dist-info, npm, and lock files.

Standard library only: images are built on hosts that have no more.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from urllib.parse import quote

DISTRO = "debian-12"  # images/build.sh: release=bookworm
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_SOURCE = re.compile(r"^(\S+)(?: \((.+)\))?$")


@dataclass(frozen=True, slots=True)
class Component:
    """One package of an ecosystem, or one file. `places` are paths in the image, or `FILE:LINE` of a lock."""

    ecosystem: str  # deb, pypi, npm, file
    name: str
    version: str
    source: str = ""  # Debian: the source package, which advisories name
    source_version: str = ""
    architecture: str = ""
    distro: str = ""
    licence: str = ""
    hashes: tuple[tuple[str, str], ...] = ()  # (SHA-256, hex)
    places: tuple[str, ...] = ()
    owner: str = field(default="", compare=False)  # Debian package that brought it, where one did

    @property
    def purl(self) -> str:
        """Package URL."""
        version = quote(self.version, safe=":~")
        if self.ecosystem == "deb":
            given = {"arch": self.architecture, "distro": self.distro}
            if self.source and (self.source, self.source_version) != (self.name, self.version):
                given["upstream"] = quote(f"{self.source}@{self.source_version}", safe=":~")
            qualifiers = "&".join(f"{key}={value}" for key, value in sorted(given.items()) if value)
            return f"pkg:deb/debian/{quote(self.name, safe='')}@{version}" + (f"?{qualifiers}" if qualifiers else "")
        if self.ecosystem == "npm":
            return f"pkg:npm/{quote(self.name, safe='/').replace('@', '%40')}@{version}"
        return f"pkg:{'pypi' if self.ecosystem == 'pypi' else 'generic'}/{quote(self.name, safe='')}@{version}"


def merged(components: Iterable[Component]) -> list[Component]:
    """Return one component for each package URL, with all its places; sorted."""
    found: dict[str, Component] = {}
    for each in components:
        known = found.get(each.purl)
        places = sorted({*each.places, *(known.places if known else ())})
        found[each.purl] = replace(known or each, places=tuple(places))
    return [found[purl] for purl in sorted(found)]


def from_dpkg(status: str, distro: str = DISTRO) -> Iterator[Component]:
    """Yield the installed packages of a dpkg status file, or of one entry of `status.d`."""
    for paragraph in re.split(r"\n\s*\n", status.strip()):
        fields = HeaderParser().parsestr(paragraph)
        name, version = fields.get("Package"), fields.get("Version")
        if not name or not version or "installed" not in fields.get("Status", "ok installed").split():
            continue
        found = _SOURCE.match(fields.get("Source", name))
        source, source_version = found.groups() if found else (name, None)
        yield Component("deb", name, version, source, source_version or version, fields.get("Architecture", ""), distro)


def from_python(metadata: str, place: str = "") -> Iterator[Component]:
    """Yield the distribution of a METADATA or PKG-INFO file."""
    fields = HeaderParser().parsestr(metadata)
    if fields.get("Name") and fields.get("Version"):
        licence = fields.get("License-Expression") or _classified(fields.get_all("Classifier", []))
        yield Component("pypi", normal(fields["Name"]), fields["Version"], licence=licence, places=_places(place))


def _classified(classifiers: Iterable[str]) -> str:
    return " AND ".join(each.split(" :: ")[-1] for each in classifiers if each.startswith("License :: "))


def from_npm(package: str, place: str = "") -> Iterator[Component]:
    """Yield the package of a package.json; nothing for one that is only a marker inside a package."""
    try:
        found = json.loads(package)
    except ValueError:
        return
    if isinstance(found, dict) and isinstance(found.get("name"), str) and isinstance(found.get("version"), str):
        licence = found.get("license")
        text = licence if isinstance(licence, str) else ""
        yield Component("npm", found["name"], found["version"], licence=text, places=_places(place))


def from_requirements(text: str, file: str) -> Iterator[Component]:
    """Yield the pins of a lock file of Python packages."""
    for found in _PIN.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Component("pypi", normal(found[1]), found[2], places=(f"{file}:{line}",))


def from_package_lock(text: str, file: str) -> Iterator[Component]:
    """Yield the packages of npm's package-lock.json."""
    for path, each in json.loads(text)["packages"].items():
        if not path or "version" not in each:
            continue
        name = each.get("name") or path.rpartition("node_modules/")[2]
        line = text.count("\n", 0, text.index(json.dumps(path))) + 1
        yield Component(
            "npm",
            name,
            each["version"],
            licence=each.get("license", "") if isinstance(each.get("license", ""), str) else "",
            hashes=tuple(_integrity(each.get("integrity", ""))),
            places=(f"{file}:{line}",),
        )


def from_vendored(text: str, file: str) -> Iterator[Component]:
    """Yield the packages of the panel's manifest of vendored files."""
    for each in json.loads(text)["packages"]:
        line = text.count("\n", 0, text.index(f'"name": {json.dumps(each["name"])}')) + 1
        yield Component(
            "npm", each["name"], each["version"], licence=each.get("license", ""), places=(f"{file}:{line}",)
        )


def of_files(hashes: Mapping[str, str]) -> Iterator[Component]:
    """Yield files by path and SHA-256, for an image without any record of packages."""
    for path, digest in hashes.items():
        yield Component("file", path, digest[:16], hashes=(("SHA-256", digest),), places=(path,))


def normal(name: str) -> str:
    """Return the name of a Python distribution in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _integrity(text: str) -> Iterator[tuple[str, str]]:
    for each in text.split():
        algorithm, _, encoded = each.partition("-")
        known = {"sha1": "SHA-1", "sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}.get(algorithm)
        if known:
            try:
                yield known, base64.b64decode(encoded, validate=True).hex()
            except binascii.Error:
                continue


def _places(place: str) -> tuple[str, ...]:
    return (place,) if place else ()
