"""MCP servers in the configuration files of clients: read as MCPServers, and written back pointing at Paddock."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.cli.errors import CliError
from controller.cli.mcp import docker_run, jsonc
from controller.version import API_VERSION

_TABLES = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",))
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
_FOLDER = re.compile(r"/[^\x00:$~]+")
_CLIENTS_VARIABLE = re.compile(r"\$\{[^}\s]{1,64}\}")
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
    """Return the servers of a configuration file of Claude, Cursor, VS Code, Zed or others alike. Raises CliError."""
    try:
        configuration = jsonc.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}; name the client's configuration file") from error
    except UnicodeDecodeError as error:
        raise CliError(f"{file}: not UTF-8 at byte {error.start}; repair it first") from error
    except json.JSONDecodeError as error:
        raise CliError(f"{file}:{error.lineno}:{error.colno}: {error.msg}; repair it first") from error
    except RecursionError as error:
        raise CliError(f"{file}: nested too deeply") from error
    tables = _tables(configuration)
    if not tables:
        table_names = ", ".join(f"`{'.'.join(table_path)}`" for table_path in _TABLES)
        raise CliError(f"{file}: has none of {table_names}; name the client's configuration file")
    documents: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    for name, entry in (named_entry for table in tables for named_entry in table.items()):
        document = _document(name, entry, notes)
        if document is None:
            continue
        document_name = document["metadata"]["name"]
        if document_name in documents:
            notes.append(f"{name}: its name becomes `{document_name}`, as another's; rename one of them in {file}")
            continue
        documents[document_name] = document
    return Imported(list(documents.values()), notes)


def _tables(settings: Any) -> list[Mapping[str, Any]]:
    """Return the tables of servers in a client's settings."""
    tables: list[Mapping[str, Any]] = []
    for path in _TABLES:
        for steps in dict.fromkeys((path, (".".join(path),))):  # editors know `mcp.servers` as one key, too
            value = settings
            for step in steps:
                value = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, dict):
                tables.append(value)
    return tables


def export_configuration(
    names: Iterable[str], table: str, command: str, options: Sequence[str], env: Mapping[str, str]
) -> dict[str, Any]:
    """Return a configuration whose servers of these names run in Paddock."""
    environment = {"env": dict(env)} if env else {}
    return {
        table: {
            name: {"command": command, "args": ["mcp", *options, "--server", name], **environment} for name in names
        }
    }


def _document(name: str, entry: Any, notes: list[str]) -> dict[str, Any] | None:
    """Return the MCPServer document of an entry; None if it is Paddock's own server, or unusable (said in `notes`)."""
    entry = dict(entry) if isinstance(entry, dict) else {}
    if isinstance(inner := entry.get("command"), dict):  # as Zed had it
        entry |= {**inner, "command": inner.get("path")}
    command = entry.get("command")
    if not isinstance(command, str) or not command:
        reason = "a server behind a URL runs elsewhere already, and that of an editor's extension is not in the file"
        notes.append(f"{name}: left out, it has no command ({reason})")
        return None
    program = _PROGRAM_END.sub("", re.split(r"[/\\]", command)[-1])
    if program == _OWN:
        return None
    try:
        args, (env, unset) = _arguments(entry.get("args")), _environment(entry.get("env"))
        spec, remarks = spec_of(program, args, env)
    except NotImported as error:
        notes.append(f"{name}: left out, {error}")
        return None
    remarks = [*remarks, *unset, *_folder(program, entry.get("cwd"), spec), *_unread(entry, args, env)]
    notes += [f"{name}: {remark}" for remark in remarks]
    spec |= {"enabled": False} if entry.get("disabled") is True or entry.get("enabled") is False else {}
    metadata = {"name": server_name(name)}
    return {"apiVersion": API_VERSION, "kind": "MCPServer", "metadata": metadata, "spec": spec}


def _arguments(arguments: Any) -> list[str]:
    """Return the arguments as texts. Raises NotImported."""
    if arguments is not None and not isinstance(arguments, list):
        raise NotImported('its `args` are no list; write ["ONE", "TWO"]')
    return [_text(argument, f"argument {number}") for number, argument in enumerate(arguments or (), 1)]


def _environment(variables: Any) -> tuple[dict[str, str], list[str]]:
    """Return the variables as texts, and a note on those without a value. Raises NotImported."""
    if variables is not None and not isinstance(variables, dict):
        raise NotImported("its `env` is no table of variables; write {NAME: VALUE}")
    unset = [key for key, value in (variables or {}).items() if value is None]
    env = {key: _text(value, f"variable {key}") for key, value in (variables or {}).items() if value is not None}
    return env, [f"{', '.join(unset)}: null leaves it unset, as it is in a sandbox"] if unset else []


def _text(value: Any, subject: str) -> str:
    """Return a value of JSON as the text that a program gets. Raises NotImported."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    raise NotImported(f"its {subject} is neither text nor a number; write it as text")


def _folder(program: str, folder: Any, spec: dict[str, Any]) -> Iterator[str]:
    """Put the folder that the program starts in into the spec, and yield what has to be said of it."""
    if not folder:
        return
    if program in docker_run.TOOLS:
        yield f"`cwd` is the folder of `{program}` itself, and left out"
    elif isinstance(folder, str) and _FOLDER.fullmatch(folder):
        spec["workingDir"] = folder
        yield f"it starts in `{folder}` of its sandbox, which has none of this host's files"
    else:
        yield "its `cwd` is left out: no folder of a sandbox; write `workingDir: /PATH` into its spec if it needs one"


def _unread(entry: Mapping[str, Any], args: Sequence[str], env: Mapping[str, str]) -> Iterator[str]:
    """Yield a note on what only the client itself knows."""
    if "envFile" in entry:
        yield "its `envFile` is not read; write the variables into `env`, or into spec.env"
    texts = " ".join((*args, *env.values()))
    if variables := sorted(set(_CLIENTS_VARIABLE.findall(texts))):
        yield f"{', '.join(variables)} stays as it is: only the client knows its value; write that"


def spec_of(program: str, args: Sequence[str], env: Mapping[str, str]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the spec of what a command line starts, and what has to be said of it. Raises NotImported."""
    notes: list[str] = []
    spec: dict[str, Any] = {"trust": "user_added"}
    if program in docker_run.TOOLS:
        container = _container(program, args, env)
        if container.network not in ("", "none"):
            remark = (
                f"it had the network `{container.network}`; list the hosts that it needs in spec.network.allowedHosts"
            )
            notes.append(remark)
        if container.limits:
            notes.append(
                f"it had `{', '.join(container.limits)}`, and has the limits of its trust; lower them in spec.limits"
            )
        secret = {name: "" for name in container.unset if _SECRET.search(name)}
        if plain := [name for name in container.unset if name not in secret]:
            notes.append(f"no value of {', '.join(plain)} is known; write it to spec.env")
        args, env = container.args, {**container.env, **secret}
        spec |= {"image": container.image}
        spec |= {"command": container.entrypoint} if container.entrypoint else {}
        spec |= {"workingDir": container.folder} if container.folder else {}
    elif program in _SHELLS:
        raise NotImported(f"it is started by `{program}`; write the server's own command in the file")
    else:
        spec |= {"command": program}
    if secret_argument := _secret_argument(args):
        advice = "whoever reads the server reads its arguments; have the program take it from a variable, and try again"
        raise NotImported(f"{secret_argument} looks secret: {advice}")
    spec |= {"args": list(args)} if args else {}
    return spec | _variables(env, notes), notes


def _container(tool: str, args: Sequence[str], env: Mapping[str, str]) -> docker_run.DockerRun:
    """Return what `docker run` would start. Raises NotImported."""
    try:
        docker_command = docker_run.parse(args, env)
    except docker_run.NotTaken as error:
        reason = f"a sandbox has no `{error}` of `{tool} run`"
        raise NotImported(f"{reason}; if it works without, write an MCPServer with `image:`") from error
    if docker_command is None:
        raise NotImported(f"`{tool}` runs no image there; write the server's own command")
    return docker_command


def _variables(variables: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """Return the fields of a spec for the variables of an entry: those that look secret without their values."""
    hidden = sorted(key for key, value in variables.items() if _SECRET.search(key) or _is_secret(value))
    plain = [{"name": key, "value": value} for key, value in variables.items() if key not in hidden]
    spec: dict[str, Any] = {"env": plain} if plain else {}
    if hidden:
        spec["secrets"] = [{"name": server_name(key), "env": key} for key in hidden]
        secret_names = ", ".join(f"{key} as secret `{server_name(key)}`" for key in hidden)
        notes.append(f"values that look secret were not read; give {secret_names} to the operator")
    return spec


def _secret_argument(args: Sequence[str]) -> str:
    """Return which argument looks secret, without its value; "" if none does."""
    for place, argument in enumerate(args):
        number, following = place + 1, args[place + 1 : place + 2]
        takes_next = argument.startswith("-") and following and not following[0].startswith("-")
        names = [left or right for left, right in _NAMED_VALUE.findall(argument)]
        names += [argument] if takes_next and "=" not in argument else []
        if secret_option := next((name for name in names if _is_secret_option(name)), ""):
            return f"argument {number} (`{secret_option[:_NAME_LETTERS]}`)"
        if _is_secret(argument):
            return f"argument {number} ({'a URL with a login' if _LOGIN.search(argument) else 'a token'})"
    return ""


def _is_secret_option(name: str) -> bool:
    spelled = name.replace("-", "_")
    return _SECRET.search(spelled) is not None and not _OF_A_FILE.search(spelled)


def _is_secret(value: str) -> bool:
    """Return True for a value that is secret whatever its name: a URL with a login, or a well-known form of token."""
    return _LOGIN.search(value) is not None or _KNOWN_TOKEN.search(value) is not None


def server_name(text: str) -> str:
    """Return the name of a server by that of its entry or package."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_NAME_LETTERS].strip("-") or "server"
