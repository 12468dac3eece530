"""`paddock create`."""

from collections.abc import Sequence

import click

from controller.cli.options import files_option, namespace_option


@click.command("create")
@files_option
@namespace_option
@click.option("--dry-run", type=click.Choice(["none", "client"]), default="none", help="client: only validate.")
@click.pass_context
def create_(ctx: click.Context, files_: Sequence[str], recursive: bool, namespace: str | None, dry_run: str) -> None:
    """Create objects from files; one that exists is refused. `apply` creates and changes.

    \b
    paddock create -f specs/quickstart.yaml
    """
    from controller.cli.written import write

    write(ctx, files_, recursive=recursive, namespace=namespace, replace=False, only_check=dry_run == "client")
