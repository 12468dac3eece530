"""`paddock version`: imports almost nothing."""

import click

from controller.version import API_VERSION, VERSION


@click.command("version")
@click.option("--daemon", is_flag=True, help="Also show the version of the daemon.")
@click.pass_context
def version_(ctx: click.Context, daemon: bool) -> None:
    """Show the version of this command, and with --daemon that of the daemon."""
    click.echo(f"paddock {VERSION} (speaks {API_VERSION})")
    if daemon:
        from controller.cli.client import connect

        found = connect(ctx).get("/version")
        click.echo(f"daemon {found['version']} (speaks {found['apiVersion']}, Python {found['python']})")
