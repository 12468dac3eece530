"""MCP servers in the configuration files of clients: read as MCPServers, and written back pointing at Paddock."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.cli.errors import CliError
from controller.cli.mcp import docker_run
from controller.version import API_VERSION

_TABLES = ("mcpServers", "servers")
_SECRET = re.compile(
    r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|(?<![A-Z])PASS(?![A-Z])|BEARER|CREDENTIAL|AUTH|PRIVATE|DATABASE_URL|DSN",
    re.IGNORECASE,
)
_OF_A_FILE = re.compile(r"(FILE|PATH|DIR)\Z", re.IGNORECASE)  # where a secret is, not the secret
_NAMED_VALUE = re.compile(
    r"([A-Za-z0-9_.-]+)=[^=]|\A([A-Za-z0-9_.-]+):(?!//)\s*."
)  # an option, a variable, a header; no version
_LOGIN = re.compile(r"://[^\s/@:]*:[^\s/@]+@|https?://[^\s/@]+@", re.IGNORECASE)
_KNOWN_TOKEN = re.compile(r"\b(gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|eyJ)[A-Za-z0-9_-]{12,}")
_PROGRAM_END = re.compile(r"\.(cmd|exe|bat)\Z", re.IGNORECASE)
_SHELLS = ("cmd", "sh", "bash", "powershell", "pwsh")
_NAME_LETTERS = 52
_OWN = "paddock"


class NotImported(Exception):
    """The command line can't be a server in a sandbox; the message says why."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Documents of a file, and notes about what it holds besides."""

    documents: Sequence[Mapping[str, Any]]
    notes: Sequence[str]


def read(file: Path) -> Imported:
    """Return the servers of a configuration file of Claude Desktop, Claude Code, Cursor or VS Code. Raises CliError."""
    try:
        found = json.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}; name the client's configuration file") from error
    except UnicodeDecodeError as error:
        raise CliError(f"{file}: not UTF-8 at byte {error.start}; repair it first") from error
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise CliError(f"{place}: {error.msg}; repair it first (JSON has no comments)") from error
    except RecursionError as error:
        raise CliError(f"{file}: nested too deeply") from error
    tables = [found[key] for key in _TABLES if isinstance(found, dict) and isinstance(found.get(key), dict)]
    if not tables:
        raise CliError(f"{file}: has neither `mcpServers` nor `servers`; name the client's configuration file")
    documents: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    for name, entry in tables[0].items():
        made = _document(name, entry, notes)
        if made is None:
            continue
        taken = made["metadata"]["name"]
        if taken in documents:
            notes.append(f"{name}: its name becomes `{taken}`, as another's; rename one of them in {file}")
            continue
        documents[taken] = made
    return Imported(list(documents.values()), notes)


def exported(
    names: Iterable[str], table: str, command: str, words: Sequence[str], env: Mapping[str, str]
) -> dict[str, Any]:
    """Return a configuration whose servers of these names run in Paddock."""
    more = {"env": dict(env)} if env else {}
    return {table: {name: {"command": command, "args": ["mcp", *words, "--server", name], **more} for name in names}}


def _document(name: str, entry: Any, notes: list[str]) -> dict[str, Any] | None:
    """Return the server of an entry; None with a note if it can't be one, without if it is Paddock's own."""
    command = entry.get("command") if isinstance(entry, dict) else None
    if not isinstance(command, str) or not command:
        notes.append(f"{name}: left out, it has no command (a server behind a URL runs elsewhere already)")
        return None
    program = _PROGRAM_END.sub("", re.split(r"[/\\]", command)[-1])
    if program == _OWN:
        return None
    args = [str(each) for each in entry.get("args", ()) if isinstance(each, str | int | float)]
    given = entry.get("env")
    env = {key: str(value) for key, value in given.items()} if isinstance(given, dict) else {}
    try:
        spec, remarks = spec_of(program, args, env)
    except NotImported as error:
        notes.append(f"{name}: left out, {error}")
        return None
    notes += [f"{name}: {each}" for each in remarks]
    spec |= {"enabled": False} if entry.get("disabled") is True or entry.get("enabled") is False else {}
    metadata = {"name": server_name(name)}
    return {"apiVersion": API_VERSION, "kind": "MCPServer", "metadata": metadata, "spec": spec}


def spec_of(program: str, args: Sequence[str], env: Mapping[str, str]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the spec of what a command line starts, and what has to be said of it. Raises NotImported."""
    notes: list[str] = []
    spec: dict[str, Any] = {"trust": "user_added"}
    if program in docker_run.TOOLS:
        found = _container(program, args, env)
        if found.network not in ("", "none"):
            words = f"it had the network `{found.network}`; list the hosts that it needs in spec.network.allowedHosts"
            notes.append(words)
        if found.limits:
            notes.append(
                f"it had `{', '.join(found.limits)}`, and has the limits of its trust; lower them in spec.limits"
            )
        secret = {each: "" for each in found.unset if _SECRET.search(each)}
        if plain := [each for each in found.unset if each not in secret]:
            notes.append(f"no value of {', '.join(plain)} is known; write it to spec.env")
        args, env = found.args, {**found.env, **secret}
        spec |= {"image": found.image}
        spec |= {"command": found.entrypoint} if found.entrypoint else {}
    elif program in _SHELLS:
        raise NotImported(f"it is started by `{program}`; write the server's own command in the file")
    else:
        spec |= {"command": program}
    if secret_argument := _secret_argument(args):
        words = "whoever reads the server reads its arguments; have the program take it from a variable, and try again"
        raise NotImported(f"{secret_argument} looks secret: {words}")
    spec |= {"args": list(args)} if args else {}
    return spec | _variables(env, notes), notes


def _container(tool: str, args: Sequence[str], env: Mapping[str, str]) -> docker_run.DockerRun:
    """Return what `docker run` would start. Raises NotImported."""
    try:
        found = docker_run.parse(args, env)
    except docker_run.NotTaken as error:
        words = f"a sandbox has no `{error}` of `{tool} run`"
        raise NotImported(f"{words}; if it works without, write an MCPServer with `image:`") from error
    if found is None:
        raise NotImported(f"`{tool}` runs no image there; write the server's own command")
    return found


def _variables(variables: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """Return the fields of a spec for the variables of an entry: those that look secret without their values."""
    hidden = sorted(key for key, value in variables.items() if _SECRET.search(key) or _is_secret(value))
    plain = [{"name": key, "value": value} for key, value in variables.items() if key not in hidden]
    spec: dict[str, Any] = {"env": plain} if plain else {}
    if hidden:
        spec["secrets"] = [{"name": server_name(key), "env": key} for key in hidden]
        words = ", ".join(f"{key} as secret `{server_name(key)}`" for key in hidden)
        notes.append(f"values that look secret were not read; give {words} to the operator")
    return spec


def _secret_argument(args: Sequence[str]) -> str:
    """Return which argument looks secret, without its value; "" if none does."""
    for place, each in enumerate(args):
        number, following = place + 1, args[place + 1 : place + 2]
        takes_next = each.startswith("-") and following and not following[0].startswith("-")
        names = [left or right for left, right in _NAMED_VALUE.findall(each)]
        names += [each] if takes_next and "=" not in each else []
        if found := next((name for name in names if _is_secret_option(name)), ""):
            return f"argument {number} (`{found[:_NAME_LETTERS]}`)"
        if _is_secret(each):
            return f"argument {number} ({'a URL with a login' if _LOGIN.search(each) else 'a token'})"
    return ""


def _is_secret_option(name: str) -> bool:
    words = name.replace("-", "_")
    return _SECRET.search(words) is not None and not _OF_A_FILE.search(words)


def _is_secret(value: str) -> bool:
    """Return True for a value that is secret whatever its name: a URL with a login, or a well-known form of token."""
    return _LOGIN.search(value) is not None or _KNOWN_TOKEN.search(value) is not None


def server_name(text: str) -> str:
    """Return the name of a server by that of its entry or package."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_NAME_LETTERS].strip("-") or "server"
