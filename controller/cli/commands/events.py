"""`paddock events`."""

import click

from controller.cli.client import connect, segment
from controller.cli.kinds import Kinds
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.output import json_text, note, say, table, yaml_text


@click.command("events")
@click.argument("what", required=False, metavar="[KIND/NAME]")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of every namespace.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Another form than a table.")
@click.option("--no-headers", is_flag=True, help="Leave the titles of the columns out.")
@click.pass_context
def events_(
    ctx: click.Context, what: str | None, namespace: str | None, everywhere: bool, output: str | None, no_headers: bool
) -> None:
    """Show what happened to all objects, or to one (also one that is gone), newest last."""
    client = connect(ctx)
    kind = name = ""
    if what:
        target = Kinds(client).targets([what])[0]
        kind, name = target.resource.kind, "".join(target.names)
    place = namespace or DEFAULT_NAMESPACE
    path = "events" if everywhere else f"namespaces/{segment(place)}/events"
    found = client.get(path, table=output is None, kind=kind, name=name)
    if output is not None:
        say((json_text if output == "json" else yaml_text)(found))
    elif found["rows"]:
        say(table(found, header=not no_headers, namespaces=everywhere))
    else:
        note("No events found." if everywhere else f"No events found in {place} namespace.")
