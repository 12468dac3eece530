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

from controller.kinds.common.quantity import format_bytes
from controller.kinds.mcpserver import INSTALL_LABEL, INSTALLED
from controller.kinds.runtime.container import stable_hash
from controller.kinds.runtime.images import PACKAGES, owner_mark
from controller.kinds.runtime.package_hosts import Registries
from controller.policy.packages.launch import Launch, LaunchError, Package, Source
from controller.version import API_VERSION

NAMESPACE = "paddock-packages"
"""Of the sandboxes that fetch packages: nobody without rights on all namespaces can change what they fetch."""
PLACE = "/opt/server"  # of the packages, in the image
FOLDER = "server"  # of the packages, in the build's context
FETCHED = f"/workspace/{FOLDER}"  # of the packages, in the sandbox that fetches them
LOCKS: Mapping[Source, str] = MappingProxyType({"npm": "package-lock.json", "pypi": "lock.json"})
LEVEL = "build"
_CACHE = "/workspace/cache"
_NPM_FLAGS = (
    *("--ignore-scripts", "--no-bin-links", "--no-audit", "--no-fund", "--omit=dev", "--save-exact", "--json"),
    *("--no-update-notifier", "--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"),
    *("--fetch-timeout=60000", f"--cache={_CACHE}"),
)
_PIP_FLAGS = (
    *("--only-binary=:all:", "--no-compile", "--no-cache-dir", "--disable-pip-version-check", "--no-input"),
    *("--no-color", "--progress-bar=off", "--timeout=30", "--retries=3"),
)
# Compiling runs nothing of the packages. The compiled files are valid wherever the sources' times go.
_COMPILE = (
    "import compileall, py_compile\n"
    f"compileall.compile_dir({FETCHED + '/lib'!r}, stripdir={FETCHED!r}, prependdir={PLACE!r}, quiet=2,"
    " invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
)
_DESCRIBE = (
    "import importlib.metadata as m, re, sys\n"
    "plain = lambda name: re.sub('[-_.]+', '-', name).lower()\n"
    f"for each in m.distributions(path=[{FETCHED + '/lib'!r}]):\n"
    "    if plain(each.metadata['Name']) == plain(sys.argv[1]):\n"
    "        print(each.read_text('entry_points.txt') or '')\n"
)
# Asks the index, after a failure, what it has of that version. It prints a word of FINDINGS.
_EXAMINE = """
import html, re, sys, urllib.error, urllib.request
index, name, version = sys.argv[1:]
if not index:
    from pip._internal.models.index import PyPI
    index = PyPI.simple_url
plain = lambda text: re.sub("[-_.]+", "-", text).lower()
try:
    page = urllib.request.urlopen(f"{index.rstrip('/')}/{plain(name)}/", timeout=20).read(1 << 24).decode()
except urllib.error.HTTPError as error:
    print("absent" if error.code in (404, 410) else "unreachable")
except OSError:
    print("unreachable")
else:
    files = [each.strip() for each in re.findall(r">([^<>]+)</a", html.unescape(page))]
    of = [each for each in files if plain(each).startswith(plain(f"{name}-{version}-"))]
    of += [each for each in files if plain(each) in [plain(f"{name}-{version}{end}") for end in (".tar.gz", ".zip")]]
    wheels = [each for each in of if each.endswith(".whl")]
    print("other" if wheels else "source-only" if of else "absent")
"""
_UNREACHABLE = (
    "the registry can't be reached from a sandbox of level build, or does not answer (`paddock describe "
    "securityprofile build` lists the hosts)"
)
_NPM_ERRORS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("E404", "ETARGET", "ENOVERSIONS"), "the registry does not have it, or not all that it needs"),
        **dict.fromkeys(("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH"), _UNREACHABLE),
        **dict.fromkeys(("ETIMEDOUT", "ERR_SOCKET_TIMEOUT", "FETCH_ERROR"), _UNREACHABLE),
        **dict.fromkeys(("E403", "E500", "E502", "E503", "E504"), _UNREACHABLE),
        "EINTEGRITY": "a file of the registry has another hash than the registry names",
    }
)
_FINDINGS: Mapping[str, str] = MappingProxyType(
    {
        "absent": "the registry does not have it",
        "source-only": "publishes no wheel, and installing its source would run code of it; choose a version with one",
        "unreachable": _UNREACHABLE,
    }
)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_INTEGRITY = re.compile(r"sha(256|384|512)-[A-Za-z0-9+/]+=*\Z")


@dataclass(frozen=True, slots=True)
class Bases:
    """Images by source of packages: `fetching` has the package manager, `running` is the base of the result."""

    fetching: Mapping[Source, str]
    running: Mapping[Source, str]


DEFAULT_BASES = Bases(
    fetching=MappingProxyType({"npm": "paddock/node:1", "pypi": "paddock/python:1"}),
    running=MappingProxyType({"npm": "paddock/node:1", "pypi": "paddock/python:1"}),
)


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """Steps of one install: fetch the packages in a sandbox, then build an image of their files."""

    source: Source
    """Registry: npm or pypi."""
    packages: tuple[Package, ...]
    """Packages to install; the server is the first one's program."""
    level: str
    """Security level of the sandbox in which they are fetched."""
    fetching: str
    """Image of that sandbox."""
    running: str
    """Base of the image that is built."""
    env: Mapping[str, str]
    """Variables of the commands."""
    commands: tuple[tuple[str, ...], ...]
    """Commands to run there; the second one fetches."""
    lock: str
    """File to read there: what was resolved."""
    describe: tuple[str, ...]
    """Command that prints the programs of the first package."""
    examine: tuple[str, ...]
    """Command that finds out, after a failure, what the registry lacks."""
    dockerfile: str
    """Text of the Dockerfile; the folder FETCHED is the context's `server/`."""
    key: str
    """Hash of the packages, the program and their base by name: an upgrade of Paddock or of the base installs nothing
    anew.
    """
    slug: str
    """Name of the first package, as part of an image's name."""

    def tag_of(self, lock: Sequence["Locked"], instance_id: str) -> str:
        """Return the image's name for what was resolved: other files have another name."""
        files = [(locked.name, locked.version, locked.integrity) for locked in lock]
        return f"{PACKAGES}{self.slug}:{stable_hash([self.key, files])[:16]}{owner_mark(instance_id)}"

    def __str__(self) -> str:
        return ", ".join(map(str, self.packages))


@dataclass(frozen=True, slots=True)
class Locked:
    """One installed package, with the hash that the registry's file had."""

    name: str
    version: str
    integrity: str


def plan_install(
    launch: Launch, registries: Registries = Registries(), bases: Bases = DEFAULT_BASES, *, image: str = ""
) -> InstallPlan | None:
    """Return the install of a command line's packages; None if it has none. Raises LaunchError.

    `image` is the base of the result, in place of that of `bases`; it needs the runtime of the packages.
    """
    if not launch.packages:
        return None
    source = launch.packages[0].source
    if launch.runtime not in ("node", "python"):
        raise LaunchError(
            f"packages of npm are installed for Node.js alone; write `npx {launch.packages[0]}`, or `image:`"
        )
    names = [package.name for package in launch.packages]
    if len(set(names)) < len(names):
        raise LaunchError(f"names `{next(name for name in names if names.count(name) > 1)}` twice; keep one")
    packages = tuple(map(str, launch.packages))
    commands = _npm(packages) if source == "npm" else _pip(packages)
    running = image or bases.running[source]
    fetching, first = bases.fetching[source], launch.packages[0]
    index = registries.npm if source == "npm" else registries.pypi
    manifest = f"{FETCHED}/node_modules/{first.name}/package.json"
    return InstallPlan(
        source=source,
        packages=launch.packages,
        level=LEVEL,
        fetching=fetching,
        running=running,
        env=_environment(source, index),
        commands=commands,
        lock=f"{FETCHED}/{LOCKS[source]}",
        describe=("cat", manifest) if source == "npm" else ("python3", "-I", "-c", _DESCRIBE, first.name),
        examine=() if source == "npm" else ("python3", "-c", _EXAMINE, index, first.name, first.version),
        dockerfile=_dockerfile(source, running),
        key=stable_hash([source, packages, launch.program, running])[:16],
        slug=re.sub(r"[^a-z0-9]+", "-", first.name.lower()).strip("-")[:100] or "server",
    )


def _environment(source: Source, index: str) -> Mapping[str, str]:
    """Return the variables of the package manager: its registry, and folders on the disk that is limited."""
    variables = {"HOME": "/workspace", "TMPDIR": _CACHE, "NO_COLOR": "1"}
    if source == "npm":
        return MappingProxyType(variables | ({"npm_config_registry": index} if index else {}))
    variables |= {"PIP_CONFIG_FILE": "/dev/null"} | ({"PIP_INDEX_URL": index} if index else {})
    scheme, _, location = index.partition("://")
    return MappingProxyType(variables | ({"PIP_TRUSTED_HOST": location.partition("/")[0]} if scheme == "http" else {}))


def _npm(packages: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return (("mkdir", "-p", FETCHED, _CACHE), ("npm", "install", "--prefix", FETCHED, *_NPM_FLAGS, "--", *packages))


def _pip(packages: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    report = ("--report", f"{FETCHED}/{LOCKS['pypi']}")
    return (
        ("mkdir", "-p", FETCHED, _CACHE),
        ("python3", "-m", "pip", "install", *_PIP_FLAGS, "--target", f"{FETCHED}/lib", *report, "--", *packages),
        ("python3", "-I", "-c", _COMPILE),
    )


def _dockerfile(source: Source, base: str) -> str:
    """Return the build: it copies what was fetched, and lets the runtime find it."""
    variables = (
        f"NODE_PATH={PLACE}/node_modules"
        if source == "npm"
        else f"PYTHONPATH={PLACE}/lib PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1"
    )
    return f"FROM {base}\nCOPY {FOLDER} {PLACE}\nENV {variables}\n"


def install_sandbox(plan: InstallPlan, *, name: str, disk_bytes: int) -> dict[str, Any]:
    """Return the document of the sandbox that fetches packages. All it writes is on one disk of that size."""
    template = {
        "image": plan.fetching,
        "command": ["sleep", "infinity"],
        "securityLevel": plan.level,
        "security": {"readOnlyRootFilesystem": True, "capabilities": []},
        "tmpfs": [{"mountPath": "/tmp", "size": "64Mi"}],  # noqa: S108 - inside the sandbox
        "volumeClaimTemplates": [
            {"name": "disk", "mountPath": "/workspace", "size": disk_bytes, "reclaimPolicy": "Delete"}
        ],
        "resources": {"limits": {"memory": "1Gi", "cpu": "1", "pids": 128}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {"name": name, "labels": {INSTALL_LABEL: plan.key}},
        "spec": {
            "template": template,
            "restartPolicy": "Never",
            "lifecycle": {"shutdownGracePeriodSeconds": 0, "activeDeadlineSeconds": 3600},
        },
    }


def failure(plan: InstallPlan, exit_code: int, stdout: str, finding: str, disk_bytes: int) -> str:
    """Return why the packages were not fetched, as far as the tools report it as data. `finding` is of `examine`."""
    if plan.source == "npm":
        code = _npm_error(stdout)
        if code == "ENOSPC":
            return f"it needs more disk than {format_bytes(disk_bytes)} (setting package_install_bytes)"
        why = _NPM_ERRORS.get(code, "")
    else:
        why = _FINDINGS.get(finding.strip(), "")
    tool = "npm" if plan.source == "npm" else "pip"
    return why or f"{tool} ended with exit code {exit_code}; it has {format_bytes(disk_bytes)} of disk"


def _npm_error(stdout: str) -> str:
    """Return the code of npm's error, as its JSON output has it; "" if there is none."""
    try:
        code = json.loads(stdout[stdout.find("{") :])["error"]["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return str(code)


def program_of(launch: Launch, description: str) -> tuple[str, ...]:
    """Return the command in the image without arguments. `description` is the output of `describe`.

    Raises LaunchError.
    """
    if launch.packages[0].source == "pypi":
        return pypi_command(launch, description)
    try:
        manifest = json.loads(description)
    except (ValueError, RecursionError) as error:
        raise LaunchError(f"{launch.packages[0]} has a package.json that can't be read") from error
    return npm_command(launch, manifest if isinstance(manifest, dict) else {})


def install_status(
    plan: InstallPlan, lock: Sequence["Locked"], program: Sequence[str], image: str, digest: str
) -> dict[str, Any]:
    """Return the part `install` of a server's status."""
    return {
        "packages": [str(package) for package in plan.packages],
        "plan": plan.key,
        "image": image,
        "digest": digest,
        "program": list(program),
        "lock": [{"name": locked.name, "version": locked.version, "integrity": locked.integrity} for locked in lock],
    }


def installed(plan: InstallPlan, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the part `install` of a server's status, if that is what the plan installs."""
    install = status.get(INSTALLED)
    is_it = isinstance(install, Mapping) and install.get("plan") == plan.key
    return install if is_it else None


def npm_command(launch: Launch, manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command in the image. `manifest` is the first package's package.json. Raises LaunchError.

    The program is the one that npx would choose: the only one, or the one with the package's own name.
    """
    package = launch.packages[0]
    own_name = package.name.rpartition("/")[2]
    bin_field = manifest.get("bin")
    programs = {own_name: bin_field} if isinstance(bin_field, str) else bin_field if isinstance(bin_field, dict) else {}
    programs = {str(name): str(path) for name, path in programs.items()}
    only = next(iter(programs)) if len({*programs.values()}) == 1 else own_name
    name = launch.program or only
    if name not in programs:
        program_names = ", ".join(sorted(programs)) or "none"
        raise LaunchError(f"{package} has no program `{name}` ({program_names}); write `npx -p {package} PROGRAM`")
    path = posixpath.normpath(posixpath.join("/", programs[name]))
    return ("node", f"{PLACE}/node_modules/{package.name}{path}")


def pypi_command(launch: Launch, entry_points: str) -> tuple[str, ...]:
    """Return the command in the image. `entry_points` is the first package's entry_points.txt. Raises LaunchError."""
    package = launch.packages[0]
    name = launch.program or package.name
    programs = dict(_console_scripts(entry_points))
    target = programs.get(name) or programs.get(name.replace("_", "-")) or programs.get(name.replace("-", "_"))
    if target is None:
        program_names = ", ".join(sorted(programs)) or "none"
        raise LaunchError(f"{package} has no program `{name}` ({program_names}); write `uvx --from {package} PROGRAM`")
    module, _, attribute = target.partition(":")
    imported = f"from {module} import {attribute.partition('.')[0]}"
    start = f"import sys; {imported}; sys.argv[0] = {name!r}; sys.exit({attribute}())"
    return ("python3", "-c", start)


def _console_scripts(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and target (`module:function`) of each; others are left out."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == "console_scripts" and "=" in line:
            name, _, target = (piece.strip() for piece in line.partition("="))
            target = target.partition("[")[0].strip()
            if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", target, re.ASCII):
                yield name, target


def read_lock(source: Source, text: str, packages: Sequence[Package]) -> tuple[Locked, ...]:
    """Return what was installed, by name. Raises LaunchError for anything that is not a registry's file with a hash.

    The lock comes from the fetching sandbox: it is checked, not trusted.
    """
    try:
        data = json.loads(text)
        locked_files = tuple(
            sorted(_npm_lock(data) if source == "npm" else _pip_report(data), key=lambda locked: locked.name)
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise LaunchError("the package manager left no lock that can be read; install again") from error
    for package in packages:
        candidates = [locked for locked in locked_files if _plain(locked.name) == _plain(package.name)]
        if not any(candidate.version == package.version for candidate in candidates):
            raise LaunchError(
                f"{package} was asked for, and {candidates[0].version if candidates else 'nothing'} was installed"
            )
    return locked_files


def _plain(name: str) -> str:
    """Return a name as PyPI compares them; names of npm are the same in it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _npm_lock(data: Mapping[str, Any]) -> Iterator[Locked]:
    for path, entry in data["packages"].items():
        if not path or entry.get("inBundle"):
            continue  # the project itself, or a part of another package's file
        name = path.rpartition("node_modules/")[2]
        # npm may be configured to leave out where the registry's own files are.
        resolved, integrity = str(entry.get("resolved", "https://")), str(entry.get("integrity", ""))
        if entry.get("link") or not resolved.startswith(("https://", "http://")) or not _INTEGRITY.match(integrity):
            raise LaunchError(f"{name} is no file of the registry with a hash; choose a version without it")
        yield Locked(name, str(entry["version"]), integrity)


def _pip_report(data: Mapping[str, Any]) -> Iterator[Locked]:
    for entry in data["install"]:
        name, version = str(entry["metadata"]["name"]), str(entry["metadata"]["version"])
        url = str(entry["download_info"]["url"])
        digest = str(entry["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", ""))
        if not url.partition("#")[0].endswith(".whl"):
            raise LaunchError(f"{name} {version} is not a wheel, and would run code while it is installed")
        if not _SHA256.match(digest):
            raise LaunchError(f"{name} {version} has no hash; choose a version with one")
        yield Locked(name, version, f"sha256:{digest}")
