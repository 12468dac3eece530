"""MCP servers in the configuration files of clients: read as MCPServers, and written back pointing at Paddock."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.cli.errors import CliError
from controller.version import API_VERSION

_TABLES = ("mcpServers", "servers")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH|PRIVATE|DATABASE_URL|DSN", re.IGNORECASE)
_PROGRAM_END = re.compile(r"\.(cmd|exe|bat)\Z", re.IGNORECASE)
_SHELLS = ("cmd", "sh", "bash", "powershell", "pwsh", "docker", "podman")
_NAME_LETTERS = 52
_OWN = "paddock"


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
    command = entry.get("command") if isinstance(entry, dict) else None
    if not isinstance(command, str) or not command:
        notes.append(f"{name}: left out, it has no command (a server behind a URL runs elsewhere already)")
        return None
    program = _PROGRAM_END.sub("", re.split(r"[/\\]", command)[-1])
    if program == _OWN:
        return None
    args = [str(each) for each in entry.get("args", ()) if isinstance(each, str | int | float)]
    if program in _SHELLS:
        notes.append(f"{name}: left out, it is started by `{program}`; write the server's own command in the file")
        return None
    given = entry.get("env")
    variables = {key: str(value) for key, value in given.items()} if isinstance(given, dict) else {}
    hidden = sorted(key for key in variables if _SECRET.search(key))
    spec: dict[str, Any] = {"trust": "user_added", "command": program}
    spec |= {"args": args} if args else {}
    plain = [{"name": key, "value": value} for key, value in variables.items() if key not in hidden]
    spec |= {"env": plain} if plain else {}
    if hidden:
        spec["secrets"] = [{"name": server_name(key), "env": key} for key in hidden]
        words = ", ".join(f"{key} as secret `{server_name(key)}`" for key in hidden)
        notes.append(f"{name}: values that look secret were not read; give {words} to the operator")
    metadata = {"name": server_name(name)}
    return {"apiVersion": API_VERSION, "kind": "MCPServer", "metadata": metadata, "spec": spec}


def server_name(text: str) -> str:
    """Return the name of a server by that of its entry or package."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_NAME_LETTERS].strip("-") or "server"
