"""Package hosts that this host's pip, npm and apt use: those of their files, else the default that pip and npm name.

No registry is named here: what is not configured is asked of the tool itself. Credentials in an address are dropped.
"""

import configparser
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from controller.kinds.runtime.package_hosts import PackageHosts, Registries, is_host_name

_ROOT = Path("/")
_WEB_PORTS = {"http": 80, "https": 443}
_PIP_KEYS = ("index-url", "extra-index-url", "find-links")
_PIP_SECTIONS = ("global", "install", "download", "wheel")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_MOST_BYTES = 1 << 20
_ASK_SECONDS = 10.0
# pip's own default: the index, and the host of its files.
_PIP_DEFAULTS = (
    "from pip._internal.models.index import PyPI as i; print(i.simple_url, 'https://' + i.file_storage_domain)"
)
# The host's own tool first. The daemon's Python has a pip, too.
_QUESTIONS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "pip": (("python3", "-I", "-c", _PIP_DEFAULTS), (sys.executable, "-I", "-c", _PIP_DEFAULTS)),
    "npm": (("npm", "config", "get", "registry"),),
}

_IMAGES = {"npm": "paddock/node:1"}  # the daemon's own Python always has a pip

Found = Iterator[tuple[str, str]]  # (address, file)


def default_addresses(tool: str, ask_image: Callable[[str, tuple[str, ...]], str] = lambda *_: "") -> tuple[str, ...]:
    """Return the addresses that pip or npm uses by default, as the tool says; () without an answer.

    This host's own tool is asked, or that of an image where the host has none: `ask_image` runs a command in one.
    """
    for command in _QUESTIONS.get(tool, ()):
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False, cwd="/")
        except (OSError, ValueError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0 and answer.stdout.strip():
            return tuple(answer.stdout.split())
    image = _IMAGES.get(tool)
    return tuple(ask_image(image, _QUESTIONS[tool][0]).split()) if image else ()


def read_package_hosts(
    tools: Iterable[str],
    root: Path = _ROOT,
    env: Mapping[str, str] | None = None,
    defaults: Callable[[str], Iterable[str]] = lambda _: (),
) -> PackageHosts:
    """Return the hosts of these tools (pip, npm, apt). `root` holds the host's files. Unreadable files are skipped.

    `defaults` has the addresses of a tool whose index or registry is not configured.
    """
    readers: Mapping[str, Callable[[Path, Mapping[str, str]], Found]] = {"pip": _pip, "npm": _npm, "apt": _apt}
    env = os.environ if env is None else env
    hosts: set[str] = set()
    left_out: list[str] = []
    for tool in tools:
        addresses = list(readers[tool](root, env))
        if not _is_configured(tool, root, env):
            addresses += [(address, "default") for address in defaults(tool)]
        for address, place in addresses:
            name, why = _host(address)
            if name:
                hosts.add(name)
            elif why:
                left_out.append(f"{tool} ({place}): {why}")
    return PackageHosts(tuple(sorted(hosts)), tuple(dict.fromkeys(left_out)))


def _is_configured(tool: str, root: Path, env: Mapping[str, str]) -> bool:
    if tool == "npm":
        return "registry" in _npm_values(root, env)
    return tool != "pip" or any(key == "index-url" for _, key in _pip_values(root, env))


def read_registries(root: Path = _ROOT, env: Mapping[str, str] | None = None) -> Registries:
    """Return the registries that this host's npm and pip are configured to install from. Unreadable files are skipped.

    A local folder is none. Credentials are dropped.
    """
    env = os.environ if env is None else env
    npm, _ = _npm_values(root, env).get("registry", ("", ""))
    pip_values = _pip_values(root, env)
    pypi = next((value for (_, key), (value, _) in pip_values.items() if key == "index-url"), "")
    return Registries(_address(npm), _address(pypi))


def registry_hosts(registries: Registries) -> tuple[str, ...]:
    """Return the hosts of registries that sandboxes can reach."""
    return tuple(name for name in (_host(registries.npm)[0], _host(registries.pypi)[0]) if name)


def _address(text: str) -> str:
    """Return a web address without credentials; "" for anything else."""
    try:
        parts = urlsplit(text.strip())
    except ValueError:
        return ""
    if parts.scheme.lower() not in _WEB_PORTS:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _host(address: str) -> tuple[str, str]:
    """Return an address's host, or the reason that no sandbox can reach it; neither for a local address."""
    scheme, _, location = address.strip().partition("://")
    scheme = scheme.rpartition("+")[2].lower()
    if scheme not in _WEB_PORTS or not location:
        return "", ""
    try:
        parts = urlsplit(f"{scheme}://{location}")
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "", "the address is malformed"
    if port not in (None, 80, 443):
        return "", f"{host}: port {port} is not allowed; sandboxes reach ports 80 and 443 only"
    if is_host_name(host):
        return host, ""
    kind = "an IP address" if _is_address(host) else "not a full name"
    return "", f"{host or 'the host'} is {kind}; sandboxes reach host names only"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _home(root: Path, env: Mapping[str, str]) -> Path:
    return root / (env.get("HOME") or "/root").lstrip("/")


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _pip(root: Path, env: Mapping[str, str]) -> Found:
    """Yield pip's addresses."""
    for value, place in _pip_values(root, env).values():
        yield from ((address, place) for address in value.split())


def _pip_values(root: Path, env: Mapping[str, str]) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return pip's values and their places, by section and key.

    A later file overrides an earlier one, and a variable overrides all files, as in pip.
    """
    home, stated_file = _home(root, env), env.get("PIP_CONFIG_FILE", "")
    files = [root / "etc/xdg/pip/pip.conf", root / "etc/pip.conf"]
    files += [home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    files = [] if stated_file == os.devnull else [*files, *([root / stated_file.lstrip("/")] if stated_file else [])]
    values: dict[tuple[str, str], tuple[str, str]] = {}
    for file in files:
        for (section, key), value in _ini(_text(file)):
            if section in _PIP_SECTIONS and key in _PIP_KEYS:
                values[section, key] = (value, str(file))
    for key in _PIP_KEYS:
        variable = "PIP_" + key.upper().replace("-", "_")
        if variable in env:
            values = {place: entry for place, entry in values.items() if place[1] != key}
            values["global", key] = (env[variable], variable)
    return values


def _ini(text: str) -> Iterator[tuple[tuple[str, str], str]]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    for section in parser.sections():
        for key, value in parser.items(section):
            yield (section, key.replace("_", "-")), value


def _npm(root: Path, env: Mapping[str, str]) -> Found:
    """Yield npm's addresses."""
    yield from _npm_values(root, env).values()


def _npm_values(root: Path, env: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
    """Return npm's `registry` and the scopes' (`@scope:registry`), with places. The user's overrides the host's."""
    files = [root / path for path in ("usr/etc/npmrc", "usr/local/etc/npmrc", "etc/npmrc")]
    files.append(_home(root, env) / ".npmrc")
    values: dict[str, tuple[str, str]] = {}
    for file in files:
        for line in _text(file).splitlines():
            key, equals, value = (token.strip() for token in line.partition("="))
            if equals and (key == "registry" or (key.startswith("@") and key.endswith(":registry"))):
                values[key] = (_VARIABLE.sub(lambda match: env.get(match[1], ""), value.strip("\"'")), str(file))
    for name, value in env.items():
        if name.lower() == "npm_config_registry":
            values["registry"] = (value, name)
    return values


def _apt(root: Path, _env: Mapping[str, str]) -> Found:
    """Yield apt's addresses, of one-line and deb822 sources (sources.list(5))."""
    folder = root / "etc/apt"
    parts = sorted((folder / "sources.list.d").glob("*")) if (folder / "sources.list.d").is_dir() else []
    for file in (folder / "sources.list", *parts):
        if file.suffix == ".list":
            yield from ((address, str(file)) for address in _lines(_text(file)))
        elif file.suffix == ".sources":
            yield from ((address, str(file)) for address in _paragraphs(_text(file)))


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        tokens = re.sub(r"\[[^]]*\]", " ", line.partition("#")[0]).split()
        if len(tokens) > 1 and tokens[0] in ("deb", "deb-src"):
            yield tokens[1]


def _paragraphs(text: str) -> Iterator[str]:
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for paragraph in re.split(r"\n\s*\n", without_comments):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line[:1].isspace():
                fields[key] = fields.get(key, "") + " " + line
                continue
            key, _, value = line.partition(":")
            key = key.strip().lower()
            fields[key] = value
        if fields.get("enabled", "yes").strip().lower() not in ("no", "false", "0", "off"):
            yield from fields.get("uris", "").split()
