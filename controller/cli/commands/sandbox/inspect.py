"""`paddock inspect`."""

import click

from controller.cli.client import connect, sandbox_path
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, sandbox_name
from controller.cli.text.output import json_text, say, yaml_text


@click.command("inspect")
@click.argument("name")
@namespace_option
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), default="yaml", show_default=True, help="Output format."
)
@click.pass_context
def inspect_(ctx: click.Context, name: str, namespace: str | None, output: str) -> None:
    """Show a sandbox's container as the engine reports it, and Paddock's record of it. Values of variables are hidden.

    \b
    paddock inspect quickstart
    paddock inspect quickstart -o json
    """
    path = sandbox_path(namespace or DEFAULT_NAMESPACE, sandbox_name(name))
    inspection = connect(ctx).get(f"{path}/inspect")
    say((json_text if output == "json" else yaml_text)(inspection))
