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
        path = _own_manifest(source)
    if sha256:
        _check_digest(path, source, sha256)
    try:
        trees, problems = read(source, _text(path))
    except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
        raise CliError(f"{source}: can't be read: {error}") from error
    if problems:
        raise CliError("\n".join(str(problem) for problem in problems))
    manifests = [tree.root.plain() for tree in trees]
    if len(manifests) != 1 or not isinstance(manifests[0], dict):
        raise CliError(f"{source}: must hold one manifest; write one mapping into {NAMES[0]}")
    return Manifest(_document(manifests[0], source), _requirements(manifests[0], source))


def with_values(document: dict[str, Any], settings: Mapping[str, str], *, grant: bool) -> dict[str, Any]:
    """Return the document with these settings, each as its type has it; with `grant`, all that it declares."""
    spec = dict(document["spec"])
    fields = spec.get("configuration") or {}
    config = dict(spec.get("config") or {})
    for name, text in settings.items():
        setting = _setting_of(name, fields)
        config[setting] = _value(name, text, fields[setting])
    if config:
        spec["config"] = config
    if grant:
        spec["granted"] = spec.get("permissions", [])
    return {**document, "spec": spec}


def split_off(settings: Mapping[str, str], fields: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the settings to apply, and a message for each that stands for something else here."""
    apart = {name for name in settings if "swarm" in name.lower() and not _field(name, fields)}
    return {name: text for name, text in settings.items() if name not in apart}, [
        _SWARM.format(setting) for setting in apart
    ]


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
    bounds = [bound_text for bound_text in re.split(r"\s*,\s*|\s+(?=[<>=~^])", text.strip()) if bound_text]
    matches = [_BOUND.fullmatch(bound_text) for bound_text in bounds]
    if not matches or None in matches:
        return None
    return all(_within(numbers(version), match["sign"], numbers(match["version"])) for match in matches if match)


def _within(version: tuple[int, ...], sign: str | None, bound: tuple[int, ...]) -> bool:
    size = max(len(version), len(bound))
    padded, least = (version_numbers + (0,) * (size - len(version_numbers)) for version_numbers in (version, bound))
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


def flags_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return settings from `--name value`, `--name=value` and `--name` (true). Raises CliError."""
    settings: dict[str, str] = {}
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("--"):
            raise CliError(f"`{word}` is not a setting; write --NAME VALUE")
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = remaining.pop(0) if remaining and not remaining[0].startswith("--") else "true"
        settings[name] = value
    return settings


def _own_manifest(name: str) -> Path:
    """Return the manifest of one of Paddock's own plugins. Raises CliError."""
    own_files = {file.stem: file for folder in _OWN for file in folder.glob("*.yaml")}
    if name not in own_files:
        listed = ", ".join(sorted(own_files)) or "none"
        raise CliError(f"{name}: no such folder, archive or plugin; Paddock's own are {listed}")
    return own_files[name]


def _check_digest(path: Path, source: str, sha256: str) -> None:
    if not path.is_file():
        raise CliError(f"{source}: --sha256 is that of an archive or a file; pack the folder first")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != sha256.lower().removeprefix("sha256:"):
        raise CliError(f"{source}: its SHA-256 is {digest}, not {sha256}; get it again from its author")


def _text(path: Path) -> str:
    if path.is_dir():
        path = next(
            (path / manifest_name for manifest_name in NAMES if (path / manifest_name).is_file()), path / NAMES[0]
        )
    if path.is_file() and tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.isfile() and Path(member.name).name in NAMES]
            members = [member for member in members if member.size <= _MOST_BYTES]
            if members:  # the outermost, so that no file of its program is taken for it
                first = min(
                    members, key=lambda member: (len(Path(member.name).parts), NAMES.index(Path(member.name).name))
                )
                file = archive.extractfile(first)
                return file.read(_MOST_BYTES).decode() if file else ""
        raise CliError(f"{path}: has no {NAMES[0]}; add it")
    if path.stat().st_size > _MOST_BYTES:
        raise CliError(f"{path}: is larger than {_MOST_BYTES} bytes; a manifest holds no data")
    return path.read_text()


def _document(manifest: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the document of a manifest, which may be one already. Raises CliError with every problem."""
    if "kind" in manifest:
        if manifest["kind"] != "Plugin" or not isinstance(manifest.get("spec"), dict):
            raise CliError(f"{source}: is a {manifest['kind']}, not a Plugin; apply it with `paddock apply -f`")
        return manifest
    problems = [f"main: {_DATA}"] if manifest.get("main") else []
    permissions: list[Any] = []
    for permission in manifest.get("permissions") or ():
        if isinstance(permission, str):
            reason = _ELSEWHERE.get(permission, "is not known; write network, secret, volume or level")
            problems.append(f"permission {permission}: {reason}")
        else:
            permissions.append(permission)
    if not manifest.get("objects"):
        problems.append("objects: missing; list the Sandboxes, SandboxTemplates or MCPServers that it brings")
    if problems:
        raise CliError("\n".join(f"{source}: {problem}" for problem in problems))
    spec_fields = ("version", "description", "author", "configuration", "config", "objects")
    spec = {name: manifest[name] for name in spec_fields if name in manifest}
    spec |= {"type": _TYPES.get(str(manifest.get("type")), manifest.get("type")), "permissions": permissions}
    return {"apiVersion": API_VERSION, "kind": "Plugin", "metadata": {"name": manifest.get("name")}, "spec": spec}


def _requirements(manifest: Mapping[str, Any], source: str) -> dict[str, str]:
    requirements = manifest.get("requirements") or {}
    if not isinstance(requirements, Mapping):
        raise CliError(f'{source}: requirements: must be a mapping; write `{{docker: ">=20.10"}}`')
    return {str(name): str(text) for name, text in requirements.items()}


def _setting_of(name: str, fields: Mapping[str, Any]) -> str:
    """Return the setting that a flag names: --enable-compose is enableCompose, or enable_compose."""
    if setting := _field(name, fields):
        return setting
    if "swarm" in name.lower():
        raise CliError(_SWARM.format(name))
    raise CliError(f"--{name}: not a setting of this plugin; it has {', '.join(sorted(fields)) or 'none'}")


def _field(name: str, fields: Mapping[str, Any]) -> str:
    """Return the setting of that name, however it is spelled; "" if there is none."""
    plain = name.replace("-", "").replace("_", "").lower()
    return next((setting for setting in fields if setting.replace("-", "").replace("_", "").lower() == plain), "")


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
