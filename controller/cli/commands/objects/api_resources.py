"""`paddock api-resources`."""

import click

from controller.cli.client import PREFIX, connect
from controller.cli.text.output import columns, say, say_table
from controller.version import API_VERSION


@click.command("api-resources")
@click.option("--no-headers", is_flag=True, help="Print no column titles.")
@click.option("-o", "--output", type=click.Choice(["wide", "name"]), help="wide: with verbs; name: names only.")
@click.pass_context
def api_resources_(ctx: click.Context, no_headers: bool, output: str | None) -> None:
    """Show the kinds that the daemon serves, with their short names."""
    resources = sorted(connect(ctx).get(PREFIX).get("resources", []), key=lambda resource: resource["name"])
    if output == "name":
        say("\n".join(resource["name"] for resource in resources))
        return
    rows = [
        [
            resource["name"],
            ",".join(resource["shortNames"]),
            API_VERSION,
            str(resource["namespaced"]).lower(),
            resource["kind"],
            *([",".join(resource["verbs"])] if output == "wide" else []),
        ]
        for resource in resources
    ]
    titles = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", *(["VERBS"] if output == "wide" else [])]
    say_table(columns(rows if no_headers else [titles, *rows]))
