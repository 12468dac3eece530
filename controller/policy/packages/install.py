"""Plan of an install: the commands that fetch packages in a sandbox of level build, and the image made of the result.

Nothing of a package runs while it is installed: npm's scripts are off, and PyPI's packages come as wheels only. The
fetching sandbox has no secrets, and the build copies files alone (no RUN), so the image is what was fetched, no more.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from controller.kinds.runtime.container import stable_hash
from controller.policy.packages.launch import Launch, LaunchError, Package, Source

PLACE = "/opt/server"  # of the packages, in the image
FETCHED = "/workspace/server"  # of the packages, in the sandbox that fetches them; it becomes the build's context
LOCKS: Mapping[Source, str] = MappingProxyType({"npm": "package-lock.json", "pypi": "lock.json"})
LEVEL = "build"
_FOLDER = "server"
_NPM_FLAGS = ("--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--save-exact", "--no-update-notifier")
_PIP_FLAGS = ("--only-binary=:all:", "--no-compile", "--no-cache-dir", "--disable-pip-version-check", "--no-input")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_INTEGRITY = re.compile(r"sha(256|384|512)-[A-Za-z0-9+/]+=*\Z")


@dataclass(frozen=True, slots=True)
class Bases:
    """Images by source of packages: `fetching` has the package manager, `running` is the base of the result."""

    fetching: Mapping[Source, str]
    running: Mapping[Source, str]


DEFAULT_BASES = Bases(
    fetching=MappingProxyType({"npm": "paddock/node:1", "pypi": "paddock/toolchain:1"}),
    running=MappingProxyType({"npm": "paddock/node:1", "pypi": "paddock/python:1"}),
)


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """Steps of one install.

    Run `commands` in a sandbox of `level` with the image `fetching`, read the file `lock` there, then build `tag` from
    `dockerfile` with the folder FETCHED as the context's `server/`. The digest of bases by tag is not part of `tag`.
    """

    source: Source
    level: str
    fetching: str
    commands: tuple[tuple[str, ...], ...]
    lock: str
    dockerfile: str
    tag: str


@dataclass(frozen=True, slots=True)
class Locked:
    """One installed package, with the hash that the registry's file had."""

    name: str
    version: str
    integrity: str


def plan_install(launch: Launch, bases: Bases = DEFAULT_BASES) -> InstallPlan | None:
    """Return the install of a command line's packages; None if it has none. Raises LaunchError."""
    if not launch.packages:
        return None
    source = launch.packages[0].source
    if launch.runtime not in ("node", "python"):
        raise LaunchError(f"there is no image with {launch.runtime}; write `npx {launch.packages[0]}`, or `image:`")
    names = [each.name for each in launch.packages]
    if len(set(names)) < len(names):
        raise LaunchError(f"names `{next(each for each in names if names.count(each) > 1)}` twice; keep one")
    packages = tuple(map(str, launch.packages))
    commands = _npm(packages) if source == "npm" else _pip(packages)
    dockerfile = _dockerfile(source, bases.running[source])
    fetching = bases.fetching[source]
    slug = re.sub(r"[^a-z0-9]+", "-", launch.packages[0].name.lower()).strip("-")
    digest = stable_hash([fetching, commands, dockerfile])[:12]
    return InstallPlan(
        source, LEVEL, fetching, commands, f"{FETCHED}/{LOCKS[source]}", dockerfile, f"mcp/{slug}:{digest}"
    )


def _npm(packages: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return (("mkdir", "-p", FETCHED), ("npm", "install", "--prefix", FETCHED, *_NPM_FLAGS, "--", *packages))


def _pip(packages: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    report = ("--report", f"{FETCHED}/{LOCKS['pypi']}")
    return (
        ("mkdir", "-p", FETCHED),
        ("python3", "-m", "pip", "install", *_PIP_FLAGS, "--target", f"{FETCHED}/lib", *report, "--", *packages),
    )


def _dockerfile(source: Source, base: str) -> str:
    """Return the build: it copies what was fetched, and lets the runtime find it."""
    found = (
        f"NODE_PATH={PLACE}/node_modules"
        if source == "npm"
        else f"PYTHONPATH={PLACE}/lib PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1"
    )
    return f"FROM {base}\nCOPY {_FOLDER} {PLACE}\nENV {found}\n"


def npm_command(launch: Launch, manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command in the image. `manifest` is the first package's package.json. Raises LaunchError.

    The program is the one that npx would choose: the only one, or the one with the package's own name.
    """
    package = launch.packages[0]
    own = package.name.rpartition("/")[2]
    found = manifest.get("bin")
    programs = {own: found} if isinstance(found, str) else found if isinstance(found, dict) else {}
    programs = {str(name): str(path) for name, path in programs.items()}
    only = next(iter(programs)) if len({*programs.values()}) == 1 else own
    name = launch.program or only
    if name not in programs:
        known = ", ".join(sorted(programs)) or "none"
        raise LaunchError(f"{package} has no program `{name}` ({known}); write `npx -p {package} PROGRAM`")
    path = posixpath.normpath(posixpath.join("/", programs[name]))
    return ("node", f"{PLACE}/node_modules/{package.name}{path}", *launch.arguments)


def pypi_command(launch: Launch, entry_points: str) -> tuple[str, ...]:
    """Return the command in the image. `entry_points` is the first package's entry_points.txt. Raises LaunchError."""
    package = launch.packages[0]
    name = launch.program or package.name
    programs = dict(_console_scripts(entry_points))
    target = programs.get(name) or programs.get(name.replace("_", "-")) or programs.get(name.replace("-", "_"))
    if target is None:
        known = ", ".join(sorted(programs)) or "none"
        raise LaunchError(f"{package} has no program `{name}` ({known}); write `uvx --from {package} PROGRAM`")
    module, _, attribute = target.partition(":")
    imported = f"from {module} import {attribute.partition('.')[0]}"
    start = f"import sys; {imported}; sys.argv[0] = {name!r}; sys.exit({attribute}())"
    return ("python3", "-c", start, *launch.arguments)


def _console_scripts(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and target (`module:function`) of each; others are left out."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == "console_scripts" and "=" in line:
            name, _, target = (each.strip() for each in line.partition("="))
            target = target.partition("[")[0].strip()
            if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", target, re.ASCII):
                yield name, target


def read_lock(source: Source, text: str, packages: Sequence[Package]) -> tuple[Locked, ...]:
    """Return what was installed, by name. Raises LaunchError for anything that is not a registry's file with a hash.

    The lock comes from the fetching sandbox: it is checked, not trusted.
    """
    try:
        data = json.loads(text)
        found = tuple(sorted(_npm_lock(data) if source == "npm" else _pip_report(data), key=lambda each: each.name))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise LaunchError("the package manager left no lock that can be read; install again") from error
    for each in packages:
        same = [one for one in found if _plain(one.name) == _plain(each.name)]
        if not any(one.version == each.version for one in same):
            raise LaunchError(f"{each} was asked for, and {same[0].version if same else 'nothing'} was installed")
    return found


def _plain(name: str) -> str:
    """Return a name as PyPI compares them; names of npm are the same in it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _npm_lock(data: Mapping[str, Any]) -> Iterator[Locked]:
    for path, each in data["packages"].items():
        if not path:
            continue  # the project itself
        name = path.rpartition("node_modules/")[2]
        # npm may be configured to leave out where the registry's own files are.
        resolved, integrity = str(each.get("resolved", "https://")), str(each.get("integrity", ""))
        if each.get("link") or not resolved.startswith(("https://", "http://")) or not _INTEGRITY.match(integrity):
            raise LaunchError(f"{name} is no file of the registry with a hash; choose a version without it")
        yield Locked(name, str(each["version"]), integrity)


def _pip_report(data: Mapping[str, Any]) -> Iterator[Locked]:
    for each in data["install"]:
        name, version = str(each["metadata"]["name"]), str(each["metadata"]["version"])
        url = str(each["download_info"]["url"])
        digest = str(each["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", ""))
        if not url.partition("#")[0].endswith(".whl"):
            raise LaunchError(f"{name} {version} is not a wheel, and would run code while it is installed")
        if not _SHA256.match(digest):
            raise LaunchError(f"{name} {version} has no hash; choose a version with one")
        yield Locked(name, version, f"sha256:{digest}")
