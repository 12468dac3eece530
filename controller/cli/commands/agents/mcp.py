"""`paddock mcp`: Paddock as an MCP server over stdin and stdout, and the configuration of its clients."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from controller.cli.commands.agents.mcp_servers import COMMANDS
from controller.cli.errors import CliError, UsageProblem
from controller.cli.mcp.bridge import endpoint, request, server_endpoint
from controller.cli.mcp.serve import command_path, environment, serve_path
from controller.cli.options import DEFAULT_NAMESPACE, Group, located, namespace_option

if TYPE_CHECKING:
    from controller.cli.mcp.client_config import McpClient

F = TypeVar("F", bound=Callable[..., Any])
_STYLES = ("dots", "underscore")
_TOOLSETS = ("basic", "all")
_CLIENTS = ("claude", "cursor", "vscode", "codex")
_NOTHING_CHOSEN = {"sandbox": "", "server": "", "namespace": "", "names": "", "toolset": "", "read_only": False}
_PAGES = 100


def _address_options(command: F) -> F:
    """Add the options that choose the endpoint and what it offers."""
    for option in (
        click.option("--read-only", is_flag=True, help="Only tools that change nothing."),
        click.option(
            "--names",
            type=click.Choice(_STYLES),
            help="Names of tools: docker.container.exec, or docker_container_exec for LLM APIs that refuse dots.",
        ),
        click.option(
            "--toolset",
            type=click.Choice(_TOOLSETS),
            help="Tools to list: about ten for running code, with texts alone as results; or all. [default: all]",
        ),
        namespace_option,
        click.option("--sandbox", default="", metavar="NAME", help="The agent in this sandbox, not Paddock's tools."),
        click.option("--server", default="", metavar="NAME", help="This MCPServer, not Paddock's tools."),
    ):
        command = option(command)
    return command


@click.group("mcp", cls=Group, invoke_without_command=True)
@_address_options
@click.pass_context
def mcp_(
    ctx: click.Context,
    sandbox: str,
    server: str,
    namespace: str | None,
    names: str | None,
    toolset: str | None,
    read_only: bool,
) -> None:
    """Serve Paddock's tools to an MCP client on stdin and stdout.

    \b
    {"command": "paddock", "args": ["mcp"]}       in the configuration of a client
    paddock mcp config claude --write             writes it there
    paddock mcp tools                             lists the tools
    paddock mcp call docker.container.exec id=my-app 'command=["ls"]'
    """
    chosen = {
        "sandbox": sandbox,
        "server": server,
        "namespace": namespace or "",
        "names": names or "",
        "toolset": toolset or "",
        "read_only": read_only,
    }
    ctx.meta["mcp"] = chosen
    if ctx.invoked_subcommand is None:
        serve_path(ctx, _path(chosen), holds=bool(server))


for command in COMMANDS:
    mcp_.add_command(command)


@mcp_.command("tools")
@_address_options
@click.option("-o", "--output", type=click.Choice(["json"]), help="Whole definitions; default: table.")
@click.pass_context
def tools(ctx: click.Context, /, output: str | None, **address_options: Any) -> None:
    """List the tools that you may call."""
    from controller.cli.text.output import columns, json_text, say, say_table

    tool_list = list(_tools(ctx, address_options))
    if output is not None:
        say(json_text({"tools": tool_list}))
        return
    rows = [["NAME", "CHANGES", "DESCRIPTION"]]
    rows += [[tool["name"], _changes(tool), _first_sentence(tool)] for tool in tool_list]
    say_table(columns(rows))


@mcp_.command("call")
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "text", metavar="JSON", help="All arguments as one JSON object; - reads it from stdin.")
@_address_options
@click.pass_context
def call(
    ctx: click.Context, /, name: str, arguments: tuple[str, ...], text: str | None, **address_options: Any
) -> None:
    """Call a tool and print its result; exit code 1 if it reports an error.

    A value that is not meant as text is JSON: 'command=["ls","-l"]', tail=10.
    """
    from controller.cli.safe_text import plain
    from controller.cli.text.output import json_text, say

    values = _arguments(ctx, name, arguments, text, address_options)
    answer = request(
        located(ctx), _path(_choose_options(ctx, address_options)), "tools/call", {"name": name, "arguments": values}
    )
    texts = "\n".join(str(block.get("text", "")) for block in answer.get("content", ()) if block.get("type") == "text")
    if answer.get("isError"):
        raise CliError(texts or f"{name} failed")
    structured = answer.get("structuredContent")
    say(json_text(structured) if structured is not None else plain(texts))


@mcp_.command("config")
@click.argument("client", type=click.Choice(_CLIENTS), required=False)
@_address_options
@click.option("--write", is_flag=True, help="Merge it into the client's file; all else in it stays.")
@click.option("--file", metavar="FILE", help="The file; default: the client's own.")
@click.pass_context
def config(ctx: click.Context, /, client: str | None, write: bool, file: str | None, **address_options: Any) -> None:
    """Print the configuration of an MCP client, or merge it into the client's file.

    Without a client: that which most clients read, and the file of each that is known here.
    """
    from controller.cli.mcp.client_config import ANY, CLIENTS, text_of
    from controller.cli.text.output import note, say

    if write and not client and not file:
        raise click.UsageError(f"--write needs the client ({', '.join(_CLIENTS)}), or --file FILE; name one")
    mcp_client, chosen = CLIENTS[client] if client else ANY, _choose_options(ctx, address_options)
    target = Path(file) if file else mcp_client.file()
    if write:
        write_config(ctx, mcp_client, chosen, target)
        return
    say(text_of(mcp_client, _entry(ctx, mcp_client, chosen)).rstrip("\n"))
    if client or file:
        note(f"for {mcp_client.title}: {target}; --write merges it into that file")
        return
    for name, listed_client in CLIENTS.items():
        note(f"for {listed_client.title}: `paddock mcp config {name} --write` merges it into {listed_client.file()}")


def write_config(ctx: click.Context, client: "McpClient", chosen: Mapping[str, Any], file: Path) -> None:
    """Merge Paddock's entry into the file of a client, and say so."""
    from controller.cli.mcp.client_config import merge
    from controller.cli.text.output import note, say

    changed = merge(client, file, _entry(ctx, client, chosen))
    say(f"{file} {'configured' if changed else 'unchanged'}")
    if changed:
        note(f"restart {client.title}, or reload its MCP servers")


def _entry(ctx: click.Context, client: "McpClient", chosen: Mapping[str, Any]) -> dict[str, Any]:
    from controller.cli.mcp.client_config import entry

    chosen = {**_NOTHING_CHOSEN, **chosen}
    _path(chosen)  # refuses contradictions
    if not chosen["sandbox"] and not chosen["server"]:
        chosen["names"] = chosen["names"] or ("underscore" if client.underscore else "")
        chosen["toolset"] = chosen["toolset"] or "basic"
    chosen["namespace"] = chosen["namespace"] or ctx.find_root().obj.namespace or DEFAULT_NAMESPACE
    return entry(client, command_path(), _command_words(chosen), environment(ctx))


def _choose_options(ctx: click.Context, address_options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the sub-command, else those given before it."""
    before = ctx.meta["mcp"]
    return {name: address_options.get(name) or before[name] for name in before}


def _path(chosen: dict[str, Any]) -> str:
    of_tools = any(chosen[name] for name in ("names", "toolset", "read_only"))
    if chosen["sandbox"] and of_tools:
        raise UsageProblem("--names, --toolset and --read-only are for Paddock's tools; leave them out with --sandbox")
    if chosen["server"]:
        if chosen["sandbox"] or of_tools:
            options = "--sandbox, --names, --toolset and --read-only"
            raise UsageProblem(f"{options} can't be combined with --server; leave them out")
        return server_endpoint(chosen["server"], chosen["namespace"] or DEFAULT_NAMESPACE)
    return endpoint(
        chosen["sandbox"],
        namespace="" if chosen["namespace"] == DEFAULT_NAMESPACE else chosen["namespace"],
        names=chosen["names"],
        read_only=chosen["read_only"],
        toolset="" if chosen["toolset"] == "all" else chosen["toolset"],
    )


def _tools(ctx: click.Context, address_options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    server, path = located(ctx), _path(_choose_options(ctx, address_options))
    cursor: dict[str, str] = {}
    for _ in range(_PAGES):
        page = request(server, path, "tools/list", cursor)
        yield from page["tools"]
        if not page.get("nextCursor"):
            return
        cursor = {"cursor": page["nextCursor"]}


def _arguments(
    ctx: click.Context, name: str, arguments: tuple[str, ...], text: str | None, address_options: dict[str, Any]
) -> dict[str, Any]:
    if text is not None:
        return _json_object(sys.stdin.read() if text == "-" else text, arguments)
    pairs = dict(_pair(argument) for argument in arguments)
    if not pairs:
        return {}
    dotted = name.replace("_", ".")
    matches = (tool for tool in _tools(ctx, address_options) if dotted == tool["name"].replace("_", "."))
    schema = next(matches, {}).get("inputSchema", {}).get("properties", {})
    return {key: value if _is_text(schema.get(key, {})) else _value(value) for key, value in pairs.items()}


def _json_object(text: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    if arguments:
        raise UsageProblem("--json holds all arguments; leave KEY=VALUE out")
    try:
        json_object = json.loads(text)
    except ValueError as error:
        raise UsageProblem(f"--json: {error}") from error
    if not isinstance(json_object, dict):
        raise UsageProblem('--json: must be one object, such as \'{"id": "my-app"}\'')
    return json_object


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageProblem(f"`{text}` is not KEY=VALUE; use --json for a whole object")
    return key, value


def _is_text(schema: dict[str, Any]) -> bool:
    options = schema.get("anyOf", [schema])
    types = {option.get("type") for option in options}
    return "string" in types and not types & {"object", "array", "number"}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _first_sentence(tool: dict[str, Any]) -> str:
    return str(tool.get("description", "")).partition(". ")[0].rstrip(".")


def _changes(tool: dict[str, Any]) -> str:
    return "no" if tool.get("annotations", {}).get("readOnlyHint") else "yes"


def _command_words(chosen: dict[str, Any]) -> list[str]:
    command_line = ["mcp"]
    for name in ("sandbox", "server", "namespace", "names", "toolset"):
        command_line += [f"--{name}", chosen[name]] if chosen[name] else []
    return command_line + (["--read-only"] if chosen["read_only"] else [])
