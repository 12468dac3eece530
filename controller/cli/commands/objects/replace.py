"""`paddock replace`."""

from collections.abc import Sequence

import click

from controller.cli.options import files_option, namespace_option


@click.command("replace")
@files_option
@namespace_option
@click.pass_context
def replace_(ctx: click.Context, files_: Sequence[str], recursive: bool, namespace: str | None) -> None:
    """Replace existing objects by those in files: what a file leaves out gets its default. `apply` merges.

    A file with a `metadata.resourceVersion` replaces only that version.

    \b
    paddock get sb/quickstart -o yaml | sed 's/priority: 0/priority: 5/' | paddock replace -f -
    """
    from controller.cli.objects.written import write

    write(ctx, files_, recursive=recursive, namespace=namespace, replace=True)
