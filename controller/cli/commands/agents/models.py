"""`paddock models`: models that sandboxes of a namespace may use, and where they come from."""

from typing import Any

import click

from controller.cli.client import Client, connect, segment
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.text.output import columns, json_text, note, say
from paddock._client.errors import ClientError


@click.command("models")
@namespace_option
@click.option("-o", "--output", type=click.Choice(["json"]), help="Whole objects; default: table.")
@click.pass_context
def models_(ctx: click.Context, /, namespace: str | None, output: str | None) -> None:
    """List the models of a namespace, their providers and model servers, and if these are ready.

    A sandbox that names one in `spec.models` reaches it at http://127.0.0.1:8090.
    """
    client, place = connect(ctx), f"namespaces/{segment(namespace or DEFAULT_NAMESPACE)}"
    sources = [source for kind in ("providers", "modelservers") for source in client.get(f"{place}/{kind}")["items"]]
    if output is not None:
        say(json_text({"items": sources}))
        return
    if not sources:
        note("No providers and no model servers found; add one with `paddock config provider add`.")
        return
    used_up = _used_up(client, place)
    rows = [["MODEL", "FROM", "READY", "REASON", "MESSAGE"]]
    say(columns(rows + [row for source in sources for row in _rows(source, used_up.get(source["metadata"]["uid"]))]))


def _used_up(client: Client, place: str) -> dict[str, str]:
    """Return a message for each source whose tokens of the day are used up, by its uid."""
    try:
        use = client.get(f"{place}/providers/-/usage")["items"]
    except ClientError:  # who may list them need not be one who sees their use
        return {}
    message = "its {tokensPerDay} tokens of this day (UTC) are used up; it answers again from {resetTime}"
    exhausted = [
        use_entry
        for use_entry in use
        if use_entry["tokensPerDay"] is not None and use_entry["tokensToday"] >= use_entry["tokensPerDay"]
    ]
    return {use_entry["metadata"]["uid"]: message.format(**use_entry) for use_entry in exhausted}


def _rows(obj: dict[str, Any], used_up: str | None) -> list[list[str]]:
    name, kind = obj["metadata"]["name"], obj["kind"].lower()
    models = obj["spec"].get("models", ["*"]) if kind == "provider" else [name]
    conditions = obj.get("status", {}).get("conditions", [])
    ready: dict[str, Any] = next((condition for condition in conditions if condition["type"] == "Ready"), {})
    state = [ready.get("status", "Unknown"), ready.get("reason", "Pending"), ready.get("message", "")]
    if used_up and state[0] != "False":
        state = ["False", "BudgetUsed", used_up]
    return [[model, f"{kind}/{name}", *state] for model in models]
