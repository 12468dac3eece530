"""`paddock version`: imports almost nothing."""

import click

from controller.version import API_VERSION, VERSION


@click.command("version")
@click.option("--daemon", is_flag=True, help="Also show the version of the daemon.")
@click.option("--client", is_flag=True, hidden=True, expose_value=False, help="As kubectl's; it is what is shown.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: text.")
@click.pass_context
def version_(ctx: click.Context, daemon: bool, output: str | None) -> None:
    """Show the version of this command, and with --daemon that of the daemon."""
    if output:
        _show(ctx, daemon, output)
        return
    click.echo(f"paddock {VERSION} (speaks {API_VERSION})")
    if daemon:
        from controller.cli.client import connect

        answer = connect(ctx).get("/version")
        click.echo(f"daemon {answer['version']} (speaks {answer['apiVersion']}, Python {answer['python']})")


def _show(ctx: click.Context, daemon: bool, output: str) -> None:
    from controller.cli.client import connect
    from controller.cli.text.output import json_text, say, yaml_text

    versions = {"clientVersion": {"version": VERSION, "apiVersion": API_VERSION}}
    if daemon:
        versions["serverVersion"] = connect(ctx).get("/version")
    say((json_text if output == "json" else yaml_text)(versions))
