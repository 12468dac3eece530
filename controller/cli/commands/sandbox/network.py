"""`paddock network`: what a sandbox reaches."""

from typing import Any
from urllib.parse import urlsplit

import click

from controller.cli.client import Client, connect
from controller.cli.errors import UsageProblem
from controller.cli.objects.kinds import Kinds
from controller.cli.options import DEFAULT_NAMESPACE, Group, namespace_option
from controller.cli.text.output import json_text, say, yaml_text

_DEFAULT_LEVEL = "full-isolation"
_SCHEMES = {"http": 80, "https": 443}


@click.group("network", cls=Group)
def network_() -> None:
    """Show what a sandbox reaches.

    \b
    paddock network check crawler git.example.org
    """


@network_.command("check")
@click.argument("name")
@click.argument("host", metavar="HOST[:PORT]|URL")
@namespace_option
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: text.")
@click.pass_context
def check_(ctx: click.Context, name: str, host: str, namespace: str | None, output: str | None) -> None:
    """Tell if a sandbox's request to a host would be allowed, and which rule decides. Nothing is sent.

    The port is 443 by default. Exit code 0: allowed, 1: refused.

    \b
    paddock network check crawler git.example.org
    paddock network check crawler http://git.example.org/
    """
    from controller.policy.network.check import check

    try:
        server, port = _target(host)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    client, name = connect(ctx), name.removeprefix("sandbox/")
    verdict = check(server, port, _reach(client, namespace or DEFAULT_NAMESPACE, name))
    if output is None:
        outcome = "allowed" if verdict.is_allowed else "refused"
        say(f"sandbox/{name}: {server}:{port} would be {outcome}\n  rule: {verdict.rule}\n  {verdict.message}")
    else:
        fields = {"host": server, "port": port, "allowed": verdict.is_allowed, "rule": verdict.rule}
        say((json_text if output == "json" else yaml_text)({**fields, "message": verdict.message}))
    if not verdict.is_allowed:
        ctx.exit(1)


def _target(text: str) -> tuple[str, int]:
    """Return host and port of `HOST`, `HOST:PORT` or a web address; port 443 by default. Raises ValueError."""
    parts = urlsplit(text if "://" in text else f"https://{text}")
    host, port = parts.hostname, parts.port
    if parts.scheme not in _SCHEMES or not host or port == 0:
        raise ValueError(f"`{text}` is not a host; write HOST, HOST:PORT or a web address")
    return host.rstrip("."), _SCHEMES[parts.scheme] if port is None else port


def _reach(client: Client, namespace: str, name: str) -> Any:
    """Return the network access of a sandbox: of its spec, its template and its security level."""
    from controller.policy.network.check import Reach

    kinds = Kinds(client)

    def get(kind: str, name: str) -> Any:
        return client.get(kinds.targets([f"{kind}/{name}"])[0].resource.path(namespace, name))

    spec = get("sandbox", name)["spec"]
    template = spec.get("template")
    if template is None:
        template = get("sandboxtemplate", spec["templateRef"]["name"])["spec"]
    level = spec.get("securityLevel") or template.get("securityLevel") or _DEFAULT_LEVEL
    network, own_network = get("securityprofile", level)["status"]["effective"]["network"], spec.get("network") or {}
    requested_hosts, level_hosts = own_network.get("allowedHosts"), network.get("allowedHosts")
    return Reach(
        level=level,
        mode=(template.get("network") or {}).get("mode") or network["mode"],
        requested_hosts=None if requested_hosts is None else tuple(requested_hosts),
        level_hosts=None if level_hosts is None else tuple(level_hosts),
        local_network=own_network.get("localNetwork") == "Allowed",
        peers=own_network.get("peers") == "Allowed",
        peer_names=tuple(own_network.get("peerNames") or ()),
    )
