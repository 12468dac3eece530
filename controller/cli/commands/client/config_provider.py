"""`paddock config provider`: model providers of a namespace."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import click

from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, Group, namespace_option

_PORT = 8090
_OWN = re.compile(
    rf"https?://(localhost|127\.0\.0\.1|\[::1\]|docker-llm-gateway|models\.paddock\.internal):{_PORT}(/.*)?"
)
# Type on the command line: the form of its API, and its own address.
_TYPES = {
    "openai": ("OpenAI", "https://api.openai.com/v1"),
    "anthropic": ("Anthropic", "https://api.anthropic.com"),
    "gemini": ("OpenAI", "https://generativelanguage.googleapis.com/v1beta/openai"),
    "docker": ("", f"http://localhost:{_PORT}"),
}


@click.group("provider", cls=Group)
def provider() -> None:
    """Add, list and remove model providers. Sandboxes use them without their keys."""


@provider.command("add")
@click.argument("name")
@click.option("--type", "type_", type=click.Choice([*_TYPES], case_sensitive=False), required=True, help="Its API.")
@click.option("--endpoint", metavar="URL", help="Its base URL. [default: that of the type]")
@click.option("--secret", metavar="NAME", help="The secret with its key, as `paddock secret set NAME` got it.")
@click.option("--ca-file", type=click.File(), help="Authorities (PEM) of an endpoint of your own; `-`: stdin.")
@click.option("--model", "models", multiple=True, metavar="PATTERN", help="A model that may be used; repeatable.")
@namespace_option
@click.pass_context
def add(
    ctx: click.Context,
    /,
    name: str,
    type_: str,
    endpoint: str | None,
    secret: str | None,
    ca_file: TextIO | None,
    models: Sequence[str],
    namespace: str | None,
) -> None:
    """Create or change a provider.

    The type docker stands for the ModelServers of the namespace, which Paddock's gateway serves already.

    \b
    paddock config provider add openai --type openai --secret openai-key --model 'gpt-*'
    paddock config provider add ollama --type openai --endpoint http://127.0.0.1:11434/v1
    """
    from controller.cli.client import connect, segment
    from controller.cli.text.output import say

    form, usual = _TYPES[type_.lower()]
    place = namespace or DEFAULT_NAMESPACE
    if not form:
        _refuse_other_address(name, endpoint or usual)
        say(_of_docker(name, place, connect(ctx).get(f"namespaces/{segment(place)}/modelservers")["items"]))
        return
    spec: dict[str, Any] = {"type": form, "url": endpoint or usual}
    spec |= {"secretRef": {"name": secret}} if secret else {}
    spec |= {"certificateAuthority": ca_file.read()} if ca_file else {}
    spec |= {"models": list(models)} if models else {}
    metadata = {"name": name, "namespace": place}
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Provider", "metadata": metadata, "spec": spec}
    sent = {"documents": [{"file": f"provider/{name}", "text": json.dumps(document)}]}
    for outcome in connect(ctx).request("POST", "apply", json=sent)["items"]:
        say(f"provider.paddock/{outcome['metadata']['name']} {outcome['result']}")


@provider.command("list")
@namespace_option
@click.option("-o", "--output", type=click.Choice(["json"]), help="Whole objects; default: table.")
@click.pass_context
def list_(ctx: click.Context, /, namespace: str | None, output: str | None) -> None:
    """List the providers of a namespace; the same as `paddock models`."""
    from controller.cli.commands.agents.models import models_

    ctx.invoke(models_, namespace=namespace, output=output)


@provider.command("remove")
@click.argument("name")
@namespace_option
@click.pass_context
def remove(ctx: click.Context, /, name: str, namespace: str | None) -> None:
    """Delete a provider. Its requests in progress are cut off."""
    from controller.cli.client import connect, segment
    from controller.cli.text.output import say

    place = segment(namespace or DEFAULT_NAMESPACE)
    connect(ctx).request("DELETE", f"namespaces/{place}/providers/{segment(name)}")
    say(f"provider.paddock/{name} deleted")


def _refuse_other_address(name: str, endpoint: str) -> None:
    """Raise CliError for another address than the gateway's."""
    if _OWN.fullmatch(endpoint) is None:
        raise CliError(
            f"{name}: models in containers are served by Paddock's own gateway at http://localhost:{_PORT}, not at "
            f"{endpoint}; write that address, or add a server of others with --type openai"
        )


def _of_docker(name: str, namespace: str, servers: Sequence[Mapping[str, Any]]) -> str:
    """Return what stands for a provider of the type docker: the ModelServers of the namespace, as far as they serve."""
    ready = [server["metadata"]["name"] for server in servers if _ready(server).get("status") == "True"]
    waiting = [
        f"{server['metadata']['name']} ({_ready(server).get('reason', 'Pending')})"
        for server in servers
        if _ready(server).get("status") != "True"
    ]
    add = "`paddock apply -f specs/modelserver/smol.yaml` adds one"
    parts = [f"serves {', '.join(ready)}" if ready else "serves no model yet"]
    parts += [f"not ready: {', '.join(waiting)}; see `paddock models`"] if waiting else []
    parts += [f"namespace {namespace} has no ModelServer; {add}"] if not servers else []
    address = f"http://127.0.0.1:{_PORT}/{namespace}/v1"
    return "; ".join(
        (
            f"{name}: {parts[0]}",
            *parts[1:],
            f"ready ones are at {address} with a Paddock token as the API key, and in a sandbox that names them as "
            "`models: [{modelServerRef: {name: ...}}]`",
        )
    )


def _ready(server: Mapping[str, Any]) -> Mapping[str, Any]:
    condition: Mapping[str, Any] = next(
        (condition for condition in server.get("status", {}).get("conditions", ()) if condition["type"] == "Ready"), {}
    )
    return condition
