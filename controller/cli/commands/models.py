"""`paddock models`: models that sandboxes of a namespace may use, and where they come from."""

from typing import Any

import click

from controller.cli.client import connect, segment
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.output import columns, json_text, note, say


@click.command("models")
@namespace_option
@click.option("-o", "--output", type=click.Choice(["json"]), help="Whole objects; default: table.")
@click.pass_context
def models_(ctx: click.Context, /, namespace: str | None, output: str | None) -> None:
    """List the models of a namespace, their providers and model servers, and if these are ready.

    A sandbox that names one in `spec.models` reaches it at http://127.0.0.1:8090.
    """
    client, place = connect(ctx), f"namespaces/{segment(namespace or DEFAULT_NAMESPACE)}"
    found = [each for kind in ("providers", "modelservers") for each in client.get(f"{place}/{kind}")["items"]]
    if output is not None:
        say(json_text({"items": found}))
        return
    if not found:
        note("No providers and no model servers found; add one with `paddock config provider add`.")
        return
    rows = [["MODEL", "FROM", "READY", "REASON", "MESSAGE"]]
    say(columns(rows + [row for each in found for row in _rows(each)]))


def _rows(obj: dict[str, Any]) -> list[list[str]]:
    name, kind = obj["metadata"]["name"], obj["kind"].lower()
    models = obj["spec"].get("models", ["*"]) if kind == "provider" else [name]
    conditions = obj.get("status", {}).get("conditions", [])
    ready: dict[str, Any] = next((each for each in conditions if each["type"] == "Ready"), {})
    state = [ready.get("status", "Unknown"), ready.get("reason", "Pending"), ready.get("message", "")]
    return [[model, f"{kind}/{name}", *state] for model in models]
