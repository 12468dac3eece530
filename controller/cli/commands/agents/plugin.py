"""`paddock plugin`: install, configure, list and remove plugins."""

import json
from typing import Any

import click

from controller.cli.client import Client, connect, segment
from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, Group, namespace_option
from controller.cli.text.output import columns, note, say

_ANY = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.group("plugin", cls=Group)
def plugin_() -> None:
    """Install plugins: objects with a configuration, which get the permissions that you grant.

    \b
    paddock plugin install ./my-plugin --set replicas=2 --grant
    paddock plugin config my-plugin --replicas 3
    """


@plugin_.command("install")
@click.argument("source", metavar="NAME|DIR|TAR")
@namespace_option
@click.option("--sha256", default="", metavar="DIGEST", help="Refuse an archive or file with another SHA-256.")
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="A setting. Repeatable.")
@click.option("--grant", is_flag=True, help="Grant all permissions that it declares.")
@click.pass_context
def install(
    ctx: click.Context, source: str, namespace: str | None, sha256: str, values: tuple[str, ...], grant: bool
) -> None:
    """Install a plugin from a folder, an archive, a file, or by the name of one of Paddock's own."""
    from controller.cli.plugin import read_manifest, split_off, unmet, with_values

    if wrong := [assignment for assignment in values if not assignment.partition("=")[0] or "=" not in assignment]:
        raise CliError(f"--set {wrong[0]}: write --set NAME=VALUE")
    settings = {name: value for name, _, value in (assignment.partition("=") for assignment in values)}
    manifest, client = read_manifest(source, sha256), connect(ctx)
    if manifest.requirements and (problems := unmet(manifest.requirements, _versions(client), source)):
        raise CliError("\n".join(problems))
    settings, explained = split_off(settings, manifest.document["spec"].get("configuration") or {})
    document = with_values(manifest.document, settings, grant=grant)
    place = namespace or DEFAULT_NAMESPACE
    body = {"documents": [{"file": source, "text": json.dumps(document)}], "namespace": place}
    client.request("POST", "apply", json=body)
    for message in explained:
        note(message)
    say(f"plugin/{document['metadata']['name']} installed")
    declared = document["spec"].get("permissions", [])
    if declared and not grant:
        note(f"it asks for {_list_text(declared)}; add --grant to grant that")


@plugin_.command("config", context_settings=_ANY)
@click.argument("name")
@namespace_option
@click.option("--grant", is_flag=True, help="Grant all permissions that it declares.")
@click.pass_context
def config(ctx: click.Context, name: str, namespace: str | None, grant: bool) -> None:
    """Change settings of a plugin: `--NAME VALUE`, or `--NAME` for true. Without any, show them."""
    from controller.cli.plugin import flags_of, split_off, with_values

    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE
    plugin = client.get(_path(place, name))
    settings = flags_of(ctx.args)
    if not settings and not grant:
        fields = plugin["spec"].get("configuration", {})
        rows = [
            [setting, str(_current(plugin, setting)), fields[setting].get("description", "")]
            for setting in sorted(fields)
        ]
        say(columns([["SETTING", "VALUE", "DESCRIPTION"], *rows]))
        return
    settings, explained = split_off(settings, plugin["spec"].get("configuration", {}))
    if explained and not settings and not grant:
        raise CliError("\n".join(explained))
    changed = with_values({"spec": plugin["spec"]}, settings, grant=grant)["spec"]
    change = {"spec": {field: changed[field] for field in ("config", "granted") if field in changed}}
    client.request("PATCH", _path(place, name), json=change, content_type="application/merge-patch+json")
    say(f"plugin/{name} configured")
    for message in explained:
        note(message)


@plugin_.command("list")
@namespace_option
@click.pass_context
def list_(ctx: click.Context, namespace: str | None) -> None:
    """List the plugins of the namespace, with what they need."""
    plugins = connect(ctx).get(f"namespaces/{segment(namespace or DEFAULT_NAMESPACE)}/plugins")["items"]
    if not plugins:
        note("No plugins.")
        return
    say(columns([["NAME", "VERSION", "STATE", "NEEDS"], *map(_row, plugins)]))


@plugin_.command("remove")
@click.argument("name")
@namespace_option
@click.pass_context
def remove(ctx: click.Context, name: str, namespace: str | None) -> None:
    """Remove a plugin and its objects. Refused while others use one of these."""
    connect(ctx).request("DELETE", _path(namespace or DEFAULT_NAMESPACE, name))
    say(f"plugin/{name} removed")


def _versions(client: Client) -> dict[str, str]:
    """Return the versions that plugins may require: of the host's engine (the oldest of several), and of MCP's SDK."""
    from importlib.metadata import version

    from controller.cli.plugin import numbers

    engines = [host.get("status", {}).get("engine", {}).get("version", "") for host in client.get("hosts")["items"]]
    return {"docker": min(engines, key=numbers, default=""), "mcp": version("mcp")}


def _row(obj: dict[str, Any]) -> list[str]:
    conditions = obj.get("status", {}).get("conditions", ())
    bad = next((condition["reason"] for condition in conditions if condition["status"] != "True"), "")
    needs = _list_text(obj.get("status", {}).get("needed", ())) or "nothing"
    return [obj["metadata"]["name"], obj["spec"]["version"], bad or ("Ready" if conditions else "Pending"), needs]


def _list_text(permissions: Any) -> str:
    pairs = (pair for permission in permissions for pair in permission.items())
    return "; ".join(f"{kind} {', '.join(value) if isinstance(value, list) else value}" for kind, value in pairs)


def _current(obj: dict[str, Any], name: str) -> Any:
    return obj["spec"].get("config", {}).get(name, obj["spec"]["configuration"][name].get("default", "(not set)"))


def _path(namespace: str, name: str) -> str:
    return f"namespaces/{segment(namespace)}/plugins/{segment(name)}"
