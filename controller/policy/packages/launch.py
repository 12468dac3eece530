"""Command lines that start a program of a package registry (npx, uvx, pipx, bunx), parsed without running anything.

A command is judged by its last path component as a whole word: `/usr/bin/npx` is npx, `npx.cmd` and `no` are not.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Runtime = Literal["node", "python", "bun", "deno"]
Source = Literal["npm", "pypi"]
_RUNTIMES: Mapping[str, Runtime] = {
    **dict.fromkeys(("node", "npx", "npm"), "node"),
    **dict.fromkeys(("python", "python3", "uvx", "uv", "pipx"), "python"),
    **dict.fromkeys(("bun", "bunx"), "bun"),
    "deno": "deno",
}
_NPM_NAME = re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*\Z")
_PYPI_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
_EXTRAS = re.compile(r"(?P<name>[^\[\]]+)\[(?P<extras>[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*)\]\Z")
_NPM_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?\Z")
_PYPI_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?\Z")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
_MAX_LETTERS = 214  # of a package's name, npm's own limit
_ONLY_REGISTRY = "names no package of a registry; write NAME and its version (no path, URL or repository)"
_REGISTRIES = "registries are the operator's; remove it"
_NO_SHELL = "hides what it starts; write the program itself"

STARTERS = ("npx", "npm", "uvx", "uv", "pipx", "bunx", "bun", "deno")
"""Commands that start a program of a registry."""


class LaunchError(Exception):
    """A command line that can't be used; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Package:
    """One version of one package. `extras` are PyPI's (`name[extra]`)."""

    source: Source
    name: str
    version: str
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.source == "npm":
            return f"{self.name}@{self.version}"
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}=={self.version}"


@dataclass(frozen=True, slots=True)
class Launch:
    """A parsed command line.

    Without `packages` the program must be in the image. The first package has the program; the others are beside it.
    `program` "" is the first package's own one.
    """

    runtime: Runtime
    packages: tuple[Package, ...]
    program: str
    arguments: tuple[str, ...]


def package_of(source: Source, name: str, version: str) -> Package:
    """Return a package that a spec names by its parts. Raises LaunchError."""
    return _parse_npm("npx", f"{name}@{version}") if source == "npm" else _parse_pypi("uvx", f"{name}=={version}")


def packaged(package: Package, program: str, arguments: Sequence[str]) -> Launch:
    """Return the launch of a program ("": its own one) of one package. Raises LaunchError."""
    if program and not _PROGRAM.match(program):
        raise LaunchError(f"`{program}` is not a program's name; write the one of {package} to start, or leave it out")
    return Launch("node" if package.source == "npm" else "python", (package,), program, tuple(arguments))


def runtime_of(command: str) -> Runtime | None:
    """Return the runtime that a command needs, by its last path component as a whole word; None: another program."""
    return _RUNTIMES.get(command.rpartition("/")[2])


def parse_launch(command: str, arguments: Sequence[str]) -> Launch:
    """Parse a command and its arguments. Raises LaunchError."""
    name, argv = command.rpartition("/")[2], tuple(arguments)
    if not name:
        raise LaunchError("names no command; write one, such as npx or uvx")
    stem, dot, ending = name.lower().rpartition(".")
    if stem and dot and ending in ("cmd", "exe", "bat", "ps1"):
        raise LaunchError(f"`{name}` is a wrapper of Windows; write `{stem}`")
    if name in ("sh", "bash", "dash", "zsh", "fish", "cmd", "powershell", "env", "sudo"):
        raise LaunchError(f"`{name}` {_NO_SHELL}")
    if name in ("docker", "podman", "nerdctl"):
        raise LaunchError(
            f"`{name}` can't be run in a sandbox; write the image as `image:`, and what follows it as `args:`"
        )
    if runtime_of(name) is None:
        commands = ", ".join(sorted(_RUNTIMES))
        raise LaunchError(f"`{name}` is not a known command ({commands}); write `image:` with an image that has it")
    parse = _PARSERS.get(name)
    if parse is None:
        return Launch(_RUNTIMES[name], (), name, argv)
    return parse(name, argv)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a tool: without a value, with one; refused ones with a message. `package` ones name packages."""

    plain: tuple[str, ...] = ()
    package: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    refused_options: Mapping[str, str] | None = None


_NPX = _Options(
    plain=("-y", "--yes", "-q", "--quiet", "-s", "--silent", "--prefer-offline", "--prefer-online"),
    package=("-p", "--package"),
    refused_options={
        **dict.fromkeys(("-c", "--call"), f"`--call` {_NO_SHELL}"),
        **dict.fromkeys(("--registry", "--userconfig", "--globalconfig"), _REGISTRIES),
        **dict.fromkeys(("--no", "--no-install"), "the package is installed beforehand; remove it"),
        **dict.fromkeys(("--node-options", "--script-shell"), "changes what the runtime loads; remove it"),
    },
)
_UVX = _Options(
    plain=("-q", "--quiet", "--isolated", "--no-progress", "--offline", "--no-cache", "-n"),
    package=("--from",),
    beside=("--with",),
    refused_options={
        **dict.fromkeys(("--index", "--index-url", "--default-index", "-i", "--extra-index-url"), _REGISTRIES),
        **dict.fromkeys(("--find-links", "-f"), _REGISTRIES),
        **dict.fromkeys(("--python", "-p"), "the image has the Python; remove it, or write `image:`"),
        **dict.fromkeys(("--with-editable", "--with-requirements"), "files are not read; write `--with NAME==VERSION`"),
        **dict.fromkeys(("--env-file",), "files are not read; list the variables in `env:`"),
    },
)
_PIPX = _Options(
    plain=("-q", "--quiet", "-v", "--verbose", "--no-cache"),
    package=("--spec",),
    refused_options={
        **dict.fromkeys(("--index-url", "-i", "--pip-args"), _REGISTRIES),
        **dict.fromkeys(("--python",), "the image has the Python; remove it, or write `image:`"),
        "--editable": _ONLY_REGISTRY,
        "--system-site-packages": "packages are isolated; remove it",
    },
)
_BUNX = _Options(
    plain=("--bun", "--silent", "--verbose"),
    package=("-p", "--package"),
    refused_options={"--no-install": "the package is installed beforehand; remove it"},
)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Arguments of a tool: its packages, those beside them, and the rest from the first that is no option."""

    packages: tuple[str, ...]
    beside: tuple[str, ...]
    arguments: tuple[str, ...]


def _take(tool: str, argv: Sequence[str], options: _Options) -> _Taken:
    packages = list[str]()
    beside = list[str]()
    refused_options = options.refused_options or {}
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        word = argv[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in refused_options:
            raise LaunchError(f"{tool} {name}: {refused_options[name]}")
        if name in options.plain and not equals:
            continue
        if name not in (*options.package, *options.beside):
            raise LaunchError(f"{tool} {name}: this option is not supported; remove it")
        if not equals:
            if at == len(argv):
                raise LaunchError(f"{tool} {name}: names no package; write one")
            value, at = argv[at], at + 1
        (packages if name in options.package else beside).append(value)
    return _Taken(tuple(packages), tuple(beside), tuple(argv[at:]))


def _launch(
    tool: str, argv: Sequence[str], options: _Options, runtime: Runtime, read: Callable[[str, str], Package]
) -> Launch:
    parsed = _take(tool, argv, options)
    beside = [read(tool, package_text) for text in parsed.beside for package_text in text.split(",")]
    if parsed.packages:
        first, *further = (read(tool, package) for package in parsed.packages)
        program, arguments = (parsed.arguments[0], parsed.arguments[1:]) if parsed.arguments else ("", ())
        if program and not _PROGRAM.match(program):
            raise LaunchError(f"{tool}: `{program}` is not a program's name; write the one of {first} to start")
        return Launch(runtime, (first, *further, *beside), program, tuple(arguments))
    if not parsed.arguments:
        raise LaunchError(f"`{tool}` names no package; write one with its version")
    return Launch(runtime, (read(tool, parsed.arguments[0]), *beside), "", parsed.arguments[1:])


def _parse_npm(tool: str, text: str) -> Package:
    """Parse `name@1.2.3` or `@scope/name@1.2.3`. Raises LaunchError without an exact version."""
    at = text.rfind("@")
    name, version = (text[:at], text[at + 1 :]) if at > 0 else (text, "")
    if not _NPM_NAME.match(name) or len(name) > _MAX_LETTERS or ".." in name:
        raise LaunchError(f"{tool}: `{text}` {_ONLY_REGISTRY}")
    if not version:
        raise LaunchError(f"`{tool} {text}` names no version: write `{name}@1.2.3`")
    if not _NPM_VERSION.match(version):
        raise LaunchError(f"`{tool} {text}` may become another version: write an exact one, such as `{name}@1.2.3`")
    return Package("npm", name, version)


def _parse_pypi(tool: str, text: str) -> Package:
    """Parse `name[extras]==1.2.3`, or `name@1.2.3` as uvx writes it. Raises LaunchError without an exact version."""
    sign = "==" if "==" in text else "@"
    name, separator, version = (piece.strip() for piece in text.partition(sign))
    extras: tuple[str, ...] = ()
    if match := _EXTRAS.match(name):
        name, extras = match["name"].strip(), tuple(sorted(match["extras"].split(",")))
    # A range (`name>=1`) is still part of the name here: no `==` separates it.
    bare_name = re.split(r"[<>=!~;]", name)[0].strip()
    if not _PYPI_NAME.match(bare_name) or len(bare_name) > _MAX_LETTERS or "://" in text or "/" in text:
        raise LaunchError(f"{tool}: `{text}` {_ONLY_REGISTRY}")
    if not separator and bare_name == name:
        raise LaunchError(f"`{tool} {text}` names no version: write `{name}==1.2.3`")
    if bare_name != name or not _PYPI_VERSION.match(version):
        raise LaunchError(
            f"`{tool} {text}` may become another version: write an exact one, such as `{bare_name}==1.2.3`"
        )
    return Package("pypi", name, version, extras)


def _npx(tool: str, argv: Sequence[str]) -> Launch:
    return _launch(tool, argv, _NPX, "node", _parse_npm)


def _npm_command(tool: str, argv: Sequence[str]) -> Launch:
    if argv[:1] not in (("exec",), ("x",)):
        raise LaunchError(f"`{tool}`: only `npm exec` starts a package; write npx with a version")
    return _launch("npm exec", argv[1:], _NPX, "node", _parse_npm)


def _uvx(tool: str, argv: Sequence[str]) -> Launch:
    return _launch(tool, argv, _UVX, "python", _parse_pypi)


def _uv(tool: str, argv: Sequence[str]) -> Launch:
    if argv[:2] != ("tool", "run"):
        raise LaunchError(f"`{tool}`: only `uv tool run` starts a package; write uvx with a version")
    return _launch("uv tool run", argv[2:], _UVX, "python", _parse_pypi)


def _pipx(tool: str, argv: Sequence[str]) -> Launch:
    if argv[:1] != ("run",):
        raise LaunchError(f"`{tool}`: only `pipx run` starts a package; write `pipx run NAME==VERSION`")
    return _launch("pipx run", argv[1:], _PIPX, "python", _parse_pypi)


def _bunx(tool: str, argv: Sequence[str]) -> Launch:
    return _launch(tool, argv, _BUNX, "bun", _parse_npm)


def _bun(tool: str, argv: Sequence[str]) -> Launch:
    if argv[:1] == ("x",):
        return _launch("bun x", argv[1:], _BUNX, "bun", _parse_npm)
    return Launch("bun", (), tool, tuple(argv))


def _deno(tool: str, argv: Sequence[str]) -> Launch:
    """Return a program of npm that deno runs, or a file of the image. deno's own permissions are kept."""
    remote = [argument for argument in argv if re.match(r"(npm|jsr|https?|git\+?):", argument)]
    if not remote:
        return Launch("deno", (), tool, tuple(argv))
    if not remote[0].startswith("npm:"):
        raise LaunchError(f"{tool}: `{remote[0]}` {_ONLY_REGISTRY}")
    at = argv.index(remote[0])
    package = _parse_npm(tool, remote[0].removeprefix("npm:").lstrip("/"))
    return Launch("deno", (package,), "", tuple(argv[at + 1 :]))


_PARSERS: Mapping[str, Callable[[str, Sequence[str]], Launch]] = {
    "npx": _npx,
    "npm": _npm_command,
    "uvx": _uvx,
    "uv": _uv,
    "pipx": _pipx,
    "bunx": _bunx,
    "bun": _bun,
    "deno": _deno,
}
