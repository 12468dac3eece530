"""`paddock config`: contexts, which are named daemons and namespaces. Only `config provider` needs a daemon."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from controller.cli.commands.client.config_provider import provider
from controller.cli.errors import CliError, UsageProblem
from controller.cli.options import Group
from controller.cli.text.output import columns, note, say, say_table
from paddock._client import contexts as stored
from paddock._client.contexts import Context
from paddock._client.credentials import check_token
from paddock._client.server import parse_address

_SERVER = "docker-desktop"
_CLIENTS = ("claude", "cursor", "vscode", "codex")
_SETTINGS = "/etc/paddock/paddock.toml"


@click.group("config", cls=Group)
def config_() -> None:
    """Show and change contexts: named daemons, one of them current.

    They are in ~/.config/paddock/config.toml (or the file named by PADDOCK_CONFIG), and serve the Python client, too.
    The flags --server and --context come first, then PADDOCK_SERVER and PADDOCK_SOCKET, then the current context.

    \b
    paddock config set-context work --server https://paddock.example.org:9465 --token-stdin --use
    paddock --context work get sandboxes
    paddock config provider add openai --type openai --secret openai-key
    """


@config_.command("get-contexts")
@click.option("--no-headers", is_flag=True, help="Print no column titles.")
@click.option("-o", "--output", type=click.Choice(["name"]), help="Print only the names.")
def get_contexts(no_headers: bool, output: str | None) -> None:
    """List the contexts; the current one is marked."""
    contexts = stored.load_contexts()
    if output == "name":
        for context in contexts.items:
            say(context.name)
        return
    if not contexts.items:
        note(f"No contexts in {stored.config_file()}.")
        return
    rows = [["CURRENT", "NAME", "SERVER", "NAMESPACE", "TOKEN FILE"]]
    for context in contexts.items:
        mark = "*" if context.name == contexts.current else ""
        rows.append(
            [mark, context.name, context.server or "-", context.namespace or "default", context.token_file or "-"]
        )
    say_table(columns(rows[1:] if no_headers else rows))


@config_.command("current-context")
def current_context() -> None:
    """Print the name of the current context."""
    contexts = stored.load_contexts()
    if not contexts.current:
        raise CliError("no context is current; choose one with `paddock config use-context NAME`")
    say(contexts.current)


def _current_name() -> str:
    """Return the name of the current context. Raises CliError without one."""
    if name := stored.load_contexts().current:
        return name
    raise CliError(
        "no context is current; write `paddock config set-context NAME --server URL --use`, or -n NAMESPACE in each "
        "command"
    )


@config_.command("use-context")
@click.argument("name")
def use_context(name: str) -> None:
    """Make a context the current one."""
    contexts = stored.load_contexts()
    contexts.find(name)
    stored.save_contexts(replace(contexts, current=name))
    say(f"context {name} is now current")


@config_.command("set-context")
@click.argument("name", required=False)
@click.option("--current", is_flag=True, help="Change the current context, instead of NAME.")
@click.option("--server", metavar="URL", help="The daemon: unix:///path/to/socket or https://host:port.")
@click.option("-n", "--namespace", metavar="NAME", help="The namespace to work in.")
@click.option("--token-file", metavar="FILE", help="A file with the token, which only you may read.")
@click.option("--token-stdin", is_flag=True, help="Read the token from stdin, and keep it in a file of its own.")
@click.option("--ca-file", metavar="FILE", help="Trusted authorities, as a PEM file.")
@click.option("--use", is_flag=True, help="Make it the current context.")
def set_context(name: str | None, current: bool, token_stdin: bool, use: bool, **parts: Any) -> None:
    """Create a context, or change the given parts of one. An empty value removes a part."""
    if bool(name) == current:
        raise click.UsageError("name the context, or give --current; one of the two")
    name = name or _current_name()
    if not name or not name.isprintable() or "/" in name or name.startswith("."):
        raise click.UsageError(f"`{name}` is not a name for a context; use letters, digits, `-`, `_` and `.`")
    if token_stdin and parts["token_file"]:
        raise click.UsageError("--token-stdin and --token-file exclude each other; give one")
    if parts["server"]:
        parse_address(parts["server"])
    contexts = stored.load_contexts()
    former = next((context for context in contexts.items if context.name == name), None)
    context = replace(former or Context(name), **{key: value for key, value in parts.items() if value is not None})
    if token_stdin:
        context = replace(context, token_file=str(_keep_token(name)))
    changed = contexts.put(context)
    stored.save_contexts(replace(changed, current=name) if use else changed)
    say(f"context {name} {'changed' if former else 'created'}")


@config_.command("delete-context")
@click.argument("name")
def delete_context(name: str) -> None:
    """Remove a context, and the token file that `--token-stdin` made."""
    contexts = stored.load_contexts()
    context = contexts.find(name)
    stored.save_contexts(contexts.without(name))
    own_file = _token_file(name)
    if context.token_file == str(own_file):
        own_file.unlink(missing_ok=True)
    say(f"context {name} deleted")


@config_.command("view")
def view() -> None:
    """Print the file of contexts; tokens are not in it."""
    say(stored.load_contexts().as_toml().rstrip("\n"))


@config_.group("mcp")
def mcp() -> None:
    """Enable Paddock's MCP server in MCP clients; `paddock mcp config` has every option."""


@mcp.command("enable")
@click.argument("name", required=False, type=click.Choice([_SERVER, *_CLIENTS]))
@click.pass_context
def enable(ctx: click.Context, name: str | None) -> None:
    """Write Paddock's MCP server into the configuration of one client (claude, cursor, vscode, codex).

    Without a name, or with docker-desktop: of each client that is in use here, else of Claude Code in this folder.
    With docker-desktop clients get all tools (`--toolset all`), else the basic ones.
    """
    from controller.cli.commands.agents.mcp import write_config
    from controller.cli.mcp.client_config import CLIENTS

    clients = [client for client in CLIENTS.values() if client.is_in_use] or [CLIENTS["claude"]]
    for client in clients if name in (None, _SERVER) else [CLIENTS[str(name)]]:
        write_config(ctx, client, {"toolset": "all" if name == _SERVER else "basic"}, client.file())


@mcp.command("set")
@click.argument("setting")
@click.argument("value")
def set_(setting: str, value: str) -> None:
    """Explain where a setting belongs: MCP clients have none of the engine's."""
    if setting != "docker.socket":
        raise UsageProblem(f"`{setting}` is not a setting of MCP clients; `paddock mcp config --help` has all options")
    address = value if "://" in value else f"unix://{value}"
    raise CliError(
        "MCP clients never get Docker's socket: the daemon alone uses it; to have it use another engine, set"
        f" docker_host = {json.dumps(address)} in {_SETTINGS} and restart it"
    )


config_.add_command(provider)


def _token_file(name: str) -> Path:
    return stored.config_file().parent / f"{name}.token"


def _keep_token(name: str) -> Path:
    """Write the token on stdin to a file; return its path."""
    if sys.stdin.isatty():
        note("Paste the token, then press Enter.")
    token = sys.stdin.readline().strip()
    if not token:
        raise CliError("no token on stdin; write `paddock config set-context NAME --token-stdin < FILE`")
    check_token(token)
    path = _token_file(name)
    stored.write_private(path, token + "\n")
    return path
