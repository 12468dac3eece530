"""Configuration files of MCP clients: Paddock's entry, merged without touching the rest."""

import contextlib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.cli.errors import CliError

NAME = "paddock"
_TOML_TABLE = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_MODE = 0o600  # of a new file: others' entries may hold secrets


@dataclass(frozen=True, slots=True)
class McpClient:
    """A client: its configuration file, below the project or the home folder, and the key of the servers' table.

    `underscore`: its LLM API refuses names of tools with dots.
    """

    title: str
    path: str
    key: str
    in_home: bool = False
    toml: bool = False
    stdio_type: bool = False
    underscore: bool = True

    def file(self) -> Path:
        """Return the path of its configuration file."""
        return (Path.home() if self.in_home else Path.cwd()) / self.path

    @property
    def is_in_use(self) -> bool:
        """True if this client is in use here: its file is there, or a folder of its own."""
        file, place = self.file(), Path.home() if self.in_home else Path.cwd()
        return file.exists() or (file.parent != place and file.parent.is_dir())


CLIENTS: Mapping[str, McpClient] = {
    "claude": McpClient("Claude Code", ".mcp.json", "mcpServers", underscore=False),
    "cursor": McpClient("Cursor", ".cursor/mcp.json", "mcpServers", in_home=True),
    "vscode": McpClient("VS Code", ".vscode/mcp.json", "servers", stdio_type=True),
    "codex": McpClient("Codex", ".codex/config.toml", "mcp_servers", in_home=True, toml=True),
}

ANY = McpClient("an MCP client", "mcp.json", "mcpServers")


def entry(client: McpClient, command: str, args: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return Paddock's entry."""
    server_entry: dict[str, Any] = {"type": "stdio"} if client.stdio_type else {}
    server_entry |= {"command": command, "args": list(args)}
    return server_entry | ({"env": dict(env)} if env else {})


def text_of(client: McpClient, server_entry: Mapping[str, Any]) -> str:
    """Return a file that holds the entry alone."""
    if client.toml:
        return _toml(client, server_entry)
    return json.dumps({client.key: {NAME: server_entry}}, indent=2) + "\n"


def merge(client: McpClient, file: Path, server_entry: Mapping[str, Any]) -> bool:
    """Put the entry into the file, all or nothing; return False if it is there already. Raises CliError."""
    file = file.resolve()  # a link stays one
    before = _read(file)
    after = (
        _merged_toml(client, file, before, server_entry)
        if client.toml
        else _merged_json(client, file, before, server_entry)
    )
    if after == before:
        return False
    _replace(file, after)
    return True


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise CliError(f"{file}: not UTF-8 at byte {error.start}; nothing was changed: repair it first") from error
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}; name another with --file") from error


def _merged_json(client: McpClient, file: Path, before: str, server_entry: Mapping[str, Any]) -> str:
    try:
        configuration = json.loads(before) if before.strip() else {}
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise CliError(f"{place}: {error.msg}; nothing was changed: repair it (JSON has no comments)") from error
    except RecursionError as error:
        raise CliError(f"{file}: nested too deeply; nothing was changed") from error
    servers = configuration.get(client.key, {}) if isinstance(configuration, dict) else None
    if not isinstance(configuration, dict) or not isinstance(servers, dict):
        where = f"`{client.key}` in it" if isinstance(configuration, dict) else "it"
        raise CliError(f"{file}: {where} is not an object; nothing was changed: repair it first")
    if servers.get(NAME) == server_entry:
        return before
    configuration[client.key] = {**servers, NAME: dict(server_entry)}
    return json.dumps(configuration, indent=_indent(before), ensure_ascii=False) + "\n"


def _indent(text: str) -> int | str:
    """Return the indentation of a file's first indented line."""
    match = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return match[1] if match is not None else 2


def _merged_toml(client: McpClient, file: Path, before: str, server_entry: Mapping[str, Any]) -> str:
    configuration = _parsed_toml(file, before)
    servers = configuration.get(client.key, {})
    if isinstance(servers, dict) and servers.get(NAME) == server_entry:
        return before
    remaining = _without_table(before, f"{client.key}.{NAME}")
    after = f"{remaining.rstrip()}\n\n{_toml(client, server_entry)}".lstrip()
    desired = {
        **configuration,
        client.key: {**(servers if isinstance(servers, dict) else {}), NAME: dict(server_entry)},
    }
    with contextlib.suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(after) == desired:
            return after
    raise CliError(
        f"{file}: can't be changed without touching the rest; add these lines yourself:\n{_toml(client, server_entry)}"
    )


def _parsed_toml(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"{file}: {error}; nothing was changed: repair it first") from error


def _without_table(text: str, table: str) -> str:
    """Return the text without that table and those below it."""
    lines, inside = [], False
    for line in text.splitlines(keepends=True):
        if match := _TOML_TABLE.match(line):
            name = match[1].replace('"', "").replace(" ", "")
            inside = name == table or name.startswith(f"{table}.")
        if not inside:
            lines.append(line)
    return "".join(lines)


def _toml(client: McpClient, server_entry: Mapping[str, Any]) -> str:
    lines = [f"[{client.key}.{NAME}]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in server_entry.items() if name != "env"]
    if "env" in server_entry:
        lines += ["", f"[{client.key}.{NAME}.env]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in server_entry["env"].items()]
    return "\n".join(lines) + "\n"


def _replace(file: Path, text: str) -> None:
    """Write the file beside itself, and rename it. Its mode is kept."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        mode = file.stat().st_mode & 0o777 if file.exists() else _MODE
        number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(number, "w", encoding="utf-8", newline="") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            Path(name).chmod(mode)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}; nothing was changed") from error
