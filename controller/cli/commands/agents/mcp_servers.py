"""`paddock mcp list|enable|disable|approve|connect|import|export`: other people's MCP servers."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from controller.cli.errors import CliError, UsageProblem
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option

if TYPE_CHECKING:
    from controller.policy.packages.launch import Launch

_KIND = "mcpservers"
_NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.command("list")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Whole objects; default: table.")
@click.pass_context
def list_(ctx: click.Context, /, namespace: str | None, everywhere: bool, output: str | None) -> None:
    """List the MCP servers of a namespace: state, trust, tools, and if they run in sandboxes."""
    from controller.cli.text.output import columns, json_text, say, say_table

    servers = _servers(ctx, namespace, everywhere=everywhere)
    if output is not None:
        say(json_text({"items": servers}))
        return
    rows = [["NAME", "STATUS", "TRUST", "TOOLS", "SANDBOX", "MESSAGE"], *map(_row, servers)]
    if everywhere:
        places = ["NAMESPACE", *(server["metadata"]["namespace"] for server in servers)]
        rows = [[place, *row] for place, row in zip(places, rows, strict=True)]
    say_table(columns(rows))


@click.command("enable", context_settings={"ignore_unknown_options": True})
@click.argument("names", nargs=-1, required=True, metavar="NAME... | COMMAND ARGUMENT...", type=click.UNPROCESSED)
@namespace_option
@click.option("--name", help="Name of a server that is made of a command line; default: that of its package.")
@click.option("--image", metavar="IMAGE", help="Image to install the package of a command line on.")
@click.pass_context
def enable(
    ctx: click.Context, /, names: Sequence[str], namespace: str | None, name: str | None, image: str | None
) -> None:
    """Let sessions of these servers begin, or make one of a command line.

    \b
    paddock mcp enable -- npx -y @scope/server@1.2.3
    paddock mcp enable --image paddock/toolchain:1 -- uvx mcp-server-git@1.2.3
    paddock mcp enable -- docker run -i --rm -e TOKEN example.org/server:1
    """
    from controller.cli.mcp.docker_run import TOOLS
    from controller.policy.packages.launch import STARTERS

    if len(names) > 1 and names[0] in (*STARTERS, *TOOLS):
        _create(ctx, names, namespace, name, image)
        return
    unknown = [candidate for candidate in names if candidate.startswith("-")]
    if unknown or name is not None or image is not None:
        option = unknown[0] if unknown else "--name" if name is not None else "--image"
        raise UsageProblem(f"{option} is for a command line, such as npx or uvx with more")
    _patch(ctx, names, namespace, {"enabled": True}, "enabled")


@click.command("disable")
@_NAMES
@namespace_option
@click.pass_context
def disable(ctx: click.Context, /, names: Sequence[str], namespace: str | None) -> None:
    """End all sessions of these servers; none begins."""
    _patch(ctx, names, namespace, {"enabled": False}, "disabled")


@click.command("approve")
@click.argument("name")
@namespace_option
@click.option("--keep", is_flag=True, help="Approve the tools that it had before the change instead.")
@click.pass_context
def approve(ctx: click.Context, /, name: str, namespace: str | None, keep: bool) -> None:
    """Approve the changed tools of a server, as it listed them last, and print what changed.

    `paddock why mcpserver/NAME` shows it before.
    """
    from controller.cli.text.output import say

    tools = _read(ctx, name, namespace).get("status", {}).get("tools", {})
    digest = (not keep and tools.get("changedDigest")) or tools.get("digest")
    if not digest:
        raise CliError(f"mcpserver/{name} has listed no tools yet; call one of them, or `paddock mcp connect {name}`")
    _patch(ctx, (name,), namespace, {"tools": {"digest": digest}}, "approved")
    for change in () if keep else tools.get("changes", ()):
        described = " ".join(change["description"].split())
        say(f"  {change['change']} {change['tool']}" + (f": {described}" if described else ""))


@click.command("connect")
@click.argument("name")
@namespace_option
@click.option(
    "--allow-unsandboxed",
    is_flag=True,
    help="Run it as your own process while the engine is unavailable, if its spec says `sandbox: Preferred`.",
)
@click.pass_context
def connect_(ctx: click.Context, /, name: str, namespace: str | None, allow_unsandboxed: bool) -> None:
    """Serve one server's tools to an MCP client on stdin and stdout; the same as `paddock mcp --server NAME`."""
    from controller.cli.mcp.bridge import server_endpoint
    from controller.cli.mcp.serve import serve_path

    path = server_endpoint(name, _namespace(ctx, namespace))
    if allow_unsandboxed:
        _run_unsandboxed(ctx, _read(ctx, name, namespace), path)
    serve_path(ctx, path, holds=True)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@namespace_option
@click.option("--dry-run", is_flag=True, help="Print the objects, and change nothing.")
@click.pass_context
def import_(ctx: click.Context, /, file: Path, namespace: str | None, dry_run: bool) -> None:
    """Make MCPServers of the servers in a client's configuration: Claude, Cursor, VS Code, Zed; with comments, too.

    All of them, or none and every reason. Values that look secret are not read: a server with such an argument is left
    out. --dry-run is refused as the import would be.
    """
    from controller.cli.client import connect
    from controller.cli.mcp import client_import
    from controller.cli.text.output import note, say
    from controller.cli.text.yaml_text import dump

    imported = client_import.read(file)
    for remark in imported.notes:
        note(remark)
    if not imported.documents:
        raise CliError(f"{file}: has no server that a sandbox could run")
    if dry_run:
        say("---\n".join(dump(document) for document in imported.documents).rstrip("\n"))
    documents = [
        {"file": f"{file} ({document['metadata']['name']})", "text": json.dumps(document)}
        for document in imported.documents
    ]
    body = {"documents": documents, "namespace": _namespace(ctx, namespace), "dryRun": dry_run}
    items = connect(ctx).request("POST", "apply", json=body)["items"]
    for outcome in items if not dry_run else ():
        say(f"mcpserver/{outcome['metadata']['name']} {outcome['result']}")


@click.command("export")
@click.argument("client", type=click.Choice(["claude", "cursor", "vscode"]), default="claude")
@namespace_option
@click.pass_context
def export(ctx: click.Context, /, client: str, namespace: str | None) -> None:
    """Print the configuration of an MCP client whose servers are those of a namespace, in their sandboxes."""
    from controller.cli.mcp import client_config, client_import
    from controller.cli.mcp.serve import command_path, environment
    from controller.cli.text.output import json_text, say

    names = [server["metadata"]["name"] for server in _servers(ctx, namespace) if server["spec"].get("enabled", True)]
    place = _namespace(ctx, namespace)
    options = ["--namespace", place] if place != DEFAULT_NAMESPACE else []
    table = client_config.CLIENTS[client].key
    say(json_text(client_import.export_configuration(names, table, command_path(), options, environment(ctx))))


def _run_unsandboxed(ctx: click.Context, server: dict[str, Any], path: str) -> None:
    """Run the server as the user's own process if its spec allows that and the engine is unavailable; else return.

    Raises CliError. Exits with the program.
    """
    from controller.cli.mcp import unsandboxed
    from controller.cli.options import located
    from controller.cli.text.output import note

    name, spec = server["metadata"]["name"], server["spec"]
    if spec.get("sandbox") != "Preferred" or spec.get("trust") != "verified":
        raise CliError(f"mcpserver/{name} runs in a sandbox only; leave --allow-unsandboxed out")
    if _condition(server, "Ready").get("reason") != "DockerUnavailable":
        return
    if spec.get("secrets") or spec.get("image"):
        raise CliError(f"mcpserver/{name} needs its image or secrets, which only a sandbox has; wait for the engine")
    note(f"mcpserver/{name} runs WITHOUT a sandbox, with your own permissions: the engine is unavailable")
    own_variables = {variable["name"]: variable["value"] for variable in spec.get("env", ())}
    folder = spec.get("workingDir")
    sys.exit(unsandboxed.run(located(ctx), path, own_command(spec), {**os.environ, **own_variables}, folder))


def own_command(spec: Mapping[str, Any]) -> list[str]:
    """Return the command line of a server on the user's own host."""
    package, args = spec.get("package"), list(spec.get("args", ()))
    if not package:
        return [spec["command"], *args]
    program = [spec["command"]] if spec.get("command") else []
    if package["registry"] == "npm":
        package_spec = f"{package['name']}@{package['version']}"
        return ["npx", "-y", *(["-p", package_spec, *program] if program else [package_spec]), *args]
    package_spec = f"{package['name']}=={package['version']}"
    return ["uvx", *(["--from", package_spec, *program] if program else [package_spec]), *args]


def _create(
    ctx: click.Context, command_line: Sequence[str], namespace: str | None, name: str | None, image: str | None
) -> None:
    """Create a server of a command line. Raises CliError."""
    from controller.cli.client import connect
    from controller.cli.mcp import client_import, docker_run
    from controller.cli.text.output import note, say
    from controller.policy.packages.launch import LaunchError, parse_launch
    from controller.version import API_VERSION

    spec: dict[str, Any] = {"command": command_line[0], "args": list(command_line[1:])}
    notes: Sequence[str] = ()
    packages: Sequence[Any] = ()
    try:
        if command_line[0] in docker_run.TOOLS:
            if image is not None:
                raise CliError("--image is for packages; the command line names an image already")
            spec, notes = client_import.spec_of(command_line[0], command_line[1:], {})
            default_name = docker_run.name_of(spec["image"])
        else:
            launch = parse_launch(command_line[0], command_line[1:])
            packages = launch.packages
            spec = _on_image(launch, image) if image is not None else spec
            default_name = packages[0].name.rpartition("/")[2] if packages else command_line[0]
    except (LaunchError, client_import.NotImported) as error:
        raise CliError(str(error)) from error
    server_name = name or client_import.server_name(default_name)
    document = {"apiVersion": API_VERSION, "kind": "MCPServer", "metadata": {"name": server_name}, "spec": spec}
    connect(ctx).request("POST", _path(_namespace(ctx, namespace)), json=document)
    for remark in notes:
        note(remark)
    hint = f"; its package is being installed: `paddock get mcpserver {server_name}`" if packages else ""
    say(f"mcpserver/{server_name} created{hint}")


def _on_image(launch: "Launch", image: str) -> dict[str, Any]:
    """Return the spec of a server whose package is installed on that image. Raises CliError."""
    if len(launch.packages) != 1:
        raise CliError("--image is for a command line with one package; write one, such as `uvx NAME@VERSION`")
    [package] = launch.packages
    name = f"{package.name}[{','.join(package.extras)}]" if package.extras else package.name
    spec = {"package": {"registry": package.source, "name": name, "version": package.version}, "image": image}
    return spec | {"args": list(launch.arguments)} | ({"command": launch.program} if launch.program else {})


def _condition(server: dict[str, Any], type_: str) -> dict[str, Any]:
    condition: dict[str, Any] = next(
        (condition for condition in server.get("status", {}).get("conditions", ()) if condition.get("type") == type_),
        {},
    )
    return condition


def _namespace(ctx: click.Context, namespace: str | None) -> str:
    """Return the namespace of the sub-command, else the one given before it."""
    return namespace or str(ctx.meta["mcp"]["namespace"]) or DEFAULT_NAMESPACE


def _path(namespace: str, name: str = "") -> str:
    from controller.cli.client import segment

    place = f"namespaces/{segment(namespace)}/{_KIND}"
    return f"{place}/{segment(name)}" if name else place


def _servers(ctx: click.Context, namespace: str | None, *, everywhere: bool = False) -> list[dict[str, Any]]:
    from controller.cli.client import connect

    path = _KIND if everywhere else _path(_namespace(ctx, namespace))
    servers: list[dict[str, Any]] = connect(ctx).get(path)["items"]
    return servers


def _read(ctx: click.Context, name: str, namespace: str | None) -> dict[str, Any]:
    from controller.cli.client import connect

    server: dict[str, Any] = connect(ctx).get(_path(_namespace(ctx, namespace), name))
    return server


def _patch(ctx: click.Context, names: Sequence[str], namespace: str | None, spec: dict[str, Any], what: str) -> None:
    from controller.cli.client import connect
    from controller.cli.text.output import say

    if len(set(names)) != len(names):
        raise UsageProblem("a name is given twice; name each server once")
    client = connect(ctx)
    for name in names:
        type_ = "application/merge-patch+json"
        client.request("PATCH", _path(_namespace(ctx, namespace), name), json={"spec": spec}, content_type=type_)
        say(f"mcpserver/{name} {what}")


def _row(server: dict[str, Any]) -> list[str]:
    spec, status = server["spec"], server.get("status", {})
    ready, confined = _condition(server, "Ready"), _condition(server, "Sandboxed")
    sandboxed = spec.get("sandbox", "Required") if confined.get("status") != "False" else "UNSANDBOXED"
    state = ready.get("reason", "Unused") if spec.get("enabled", True) else "Disabled"
    count = str(status.get("tools", {}).get("count", "-"))
    message = "" if ready.get("status") == "True" else str(ready.get("message", "")).partition("\n")[0]
    return [server["metadata"]["name"], state, spec["trust"], count, sandboxed, message[:100]]


COMMANDS = (list_, enable, disable, approve, connect_, import_, export)
