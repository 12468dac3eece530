"""Plugins on the command line: a manifest from a folder, an archive or Paddock's own, as a Plugin document."""

import hashlib
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.cli.errors import CliError
from controller.documents.yaml_tree import read
from controller.version import API_VERSION

NAMES = ("plugin.yaml", "plugin.yml", "plugin.json", "manifest.json", "manifest.yaml", "manifest.yml")
_HERE = Path(__file__).parents
_OWN = (_HERE[2] / "specs" / "plugin", _HERE[1] / "specs" / "plugin")  # of a checkout, of an installed package
_MOST_BYTES = 1 << 20
_TYPES = {"mcp-provider": "MCPProvider", "llm-provider": "LLMProvider", "tool": "Tool"}
_DATA = (
    "plugins are data here, and no code of theirs runs outside of sandboxes; put the program into an image, and add a "
    "Sandbox or an MCPServer that runs it to `objects`"
)
_SWARM = "--{}: a host works alone here; placement comes with several hosts"
_BOUND = re.compile(r"(?P<sign>>=|=>|<=|~=|~>|==|[<>=~^])?\s*v?(?P<version>[0-9]{1,9}(\.[0-9]{1,9})*)")
_ELSEWHERE = {
    "docker.access": "no plugin gets the engine; use the tools of `paddock mcp`, or a Sandbox among `objects`",
    "filesystem.read": "no plugin reads the host's files; give its sandbox a `volume:`",
    "filesystem.write": "no plugin writes the host's files; give its sandbox a `volume:`",
    "network.local": "no plugin joins the local network; write the hosts that it needs as `network: [HOST]`",
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A plugin as its author wrote it: the Plugin document, and the versions that it requires of the host."""

    document: dict[str, Any]
    requirements: Mapping[str, str]


def read_manifest(source: str, sha256: str = "") -> Manifest:
    """Return the plugin of a folder, a tar archive, a file, or the name of one of Paddock's own plugins."""
    path = Path(source)
    if not path.exists():
        path = _own(source)
    if sha256:
        _check_digest(path, source, sha256)
    try:
        trees, problems = read(source, _text(path))
    except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
        raise CliError(f"{source}: can't be read: {error}") from error
    if problems:
        raise CliError("\n".join(str(each) for each in problems))
    found = [each.root.plain() for each in trees]
    if len(found) != 1 or not isinstance(found[0], dict):
        raise CliError(f"{source}: must hold one manifest; write one mapping into {NAMES[0]}")
    return Manifest(_document(found[0], source), _requirements(found[0], source))


def with_values(document: dict[str, Any], given: Mapping[str, str], *, grant: bool) -> dict[str, Any]:
    """Return the document with these settings, each as its type has it; with `grant`, all that it declares."""
    spec = dict(document["spec"])
    fields = spec.get("configuration") or {}
    config = dict(spec.get("config") or {})
    for name, text in given.items():
        setting = _named(name, fields)
        config[setting] = _value(name, text, fields[setting])
    if config:
        spec["config"] = config
    if grant:
        spec["granted"] = spec.get("permissions", [])
    return {**document, "spec": spec}


def split_off(given: Mapping[str, str], fields: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the settings to apply, and a message for each that stands for something else here."""
    apart = {name for name in given if "swarm" in name.lower() and not _field(name, fields)}
    return {name: text for name, text in given.items() if name not in apart}, [_SWARM.format(each) for each in apart]


def unmet(required: Mapping[str, str], versions: Mapping[str, str], source: str) -> list[str]:
    """Return every requirement that these versions do not meet, in words. Without a version it is not met."""
    problems = []
    for name, text in sorted(required.items()):
        at, version = f"{source}: requirements.{name}", versions.get(name)
        if name not in versions:
            problems.append(f"{at}: is not known; write {' or '.join(sorted(versions))}")
        elif (met := _meets(str(version), text)) is None:
            problems.append(f"{at}: `{text}` compares no versions; write such as >=1.0")
        elif not version:
            problems.append(f"{at}: the version of {name} is not known now; see `paddock doctor`, and try again")
        elif not met:
            problems.append(f"{at}: needs {text}, and this host has {version}; get a version of the plugin for it")
    return problems


def _meets(version: str, text: str) -> bool | None:
    """Return True if a version is within all bounds of a text such as `>=20.10, <30`; None if it compares none."""
    bounds = [part for part in re.split(r"\s*,\s*|\s+(?=[<>=~^])", text.strip()) if part]
    matches = [_BOUND.fullmatch(each) for each in bounds]
    if not matches or None in matches:
        return None
    return all(_within(numbers(version), each["sign"], numbers(each["version"])) for each in matches if each)


def _within(version: tuple[int, ...], sign: str | None, bound: tuple[int, ...]) -> bool:
    size = max(len(version), len(bound))
    padded, least = (each + (0,) * (size - len(each)) for each in (version, bound))
    match sign:
        case ">=" | "=>":
            return padded >= least
        case ">":
            return padded > least
        case "<=":
            return padded <= least
        case "<":
            return padded < least
        case "^":
            return padded >= least and version[:1] == bound[:1]
        case "~" | "~=" | "~>":
            fixed = max(1, len(bound) - 1)
            return padded >= least and version[:fixed] == bound[:fixed]
    return version[: len(bound)] == bound


def numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: 20.10.24+dfsg1 is (20, 10, 24)."""
    leading = re.match(r"[0-9]{1,9}(\.[0-9]{1,9})*", text.removeprefix("v"))
    return tuple(map(int, leading[0].split("."))) if leading else ()


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """Return settings from `--name value`, `--name=value` and `--name` (true). Raises CliError."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise CliError(f"`{word}` is not a setting; write --NAME VALUE")
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        found[name] = value
    return found


def _own(name: str) -> Path:
    """Return the manifest of one of Paddock's own plugins. Raises CliError."""
    known = {each.stem: each for folder in _OWN for each in folder.glob("*.yaml")}
    if name not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise CliError(f"{name}: no such folder, archive or plugin; Paddock's own are {listed}")
    return known[name]


def _check_digest(path: Path, source: str, sha256: str) -> None:
    if not path.is_file():
        raise CliError(f"{source}: --sha256 is that of an archive or a file; pack the folder first")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256.lower().removeprefix("sha256:"):
        raise CliError(f"{source}: its SHA-256 is {found}, not {sha256}; get it again from its author")


def _text(path: Path) -> str:
    if path.is_dir():
        path = next((path / each for each in NAMES if (path / each).is_file()), path / NAMES[0])
    if path.is_file() and tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            members = [each for each in archive if each.isfile() and Path(each.name).name in NAMES]
            members = [each for each in members if each.size <= _MOST_BYTES]
            if members:  # the outermost, so that no file of its program is taken for it
                first = min(members, key=lambda each: (len(Path(each.name).parts), NAMES.index(Path(each.name).name)))
                file = archive.extractfile(first)
                return file.read(_MOST_BYTES).decode() if file else ""
        raise CliError(f"{path}: has no {NAMES[0]}; add it")
    if path.stat().st_size > _MOST_BYTES:
        raise CliError(f"{path}: is larger than {_MOST_BYTES} bytes; a manifest holds no data")
    return path.read_text()


def _document(found: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the document of a manifest, which may be one already. Raises CliError with every problem."""
    if "kind" in found:
        if found["kind"] != "Plugin" or not isinstance(found.get("spec"), dict):
            raise CliError(f"{source}: is a {found['kind']}, not a Plugin; apply it with `paddock apply -f`")
        return found
    problems = [f"main: {_DATA}"] if found.get("main") else []
    permissions: list[Any] = []
    for each in found.get("permissions") or ():
        if isinstance(each, str):
            words = _ELSEWHERE.get(each, "is not known; write network, secret, volume or level")
            problems.append(f"permission {each}: {words}")
        else:
            permissions.append(each)
    if not found.get("objects"):
        problems.append("objects: missing; list the Sandboxes, SandboxTemplates or MCPServers that it brings")
    if problems:
        raise CliError("\n".join(f"{source}: {each}" for each in problems))
    kept = ("version", "description", "author", "configuration", "config", "objects")
    spec = {name: found[name] for name in kept if name in found}
    spec |= {"type": _TYPES.get(str(found.get("type")), found.get("type")), "permissions": permissions}
    return {"apiVersion": API_VERSION, "kind": "Plugin", "metadata": {"name": found.get("name")}, "spec": spec}


def _requirements(manifest: Mapping[str, Any], source: str) -> dict[str, str]:
    written = manifest.get("requirements") or {}
    if not isinstance(written, Mapping):
        raise CliError(f'{source}: requirements: must be a mapping; write `{{docker: ">=20.10"}}`')
    return {str(name): str(text) for name, text in written.items()}


def _named(name: str, fields: Mapping[str, Any]) -> str:
    """Return the setting that a flag names: --enable-compose is enableCompose, or enable_compose."""
    if setting := _field(name, fields):
        return setting
    if "swarm" in name.lower():
        raise CliError(_SWARM.format(name))
    raise CliError(f"--{name}: not a setting of this plugin; it has {', '.join(sorted(fields)) or 'none'}")


def _field(name: str, fields: Mapping[str, Any]) -> str:
    """Return the setting of that name, however it is spelled; "" if there is none."""
    plain = name.replace("-", "").replace("_", "").lower()
    return next((each for each in fields if each.replace("-", "").replace("_", "").lower() == plain), "")


def _value(name: str, text: str, field: Mapping[str, Any]) -> Any:
    match field.get("type", "string"):
        case "integer":
            if not re.fullmatch(r"-?[0-9]{1,18}", text):
                raise CliError(f"--{name}: `{text}` is not a number; write one")
            return int(text)
        case "boolean":
            if text not in ("true", "false"):
                raise CliError(f"--{name}: `{text}` is neither true nor false; write one of them")
            return text == "true"
    return text
