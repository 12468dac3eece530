"""`paddock annotate`."""

from collections.abc import Sequence

import click

from controller.cli.objects.patch import dry_run_option
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, selector_option


@click.command("annotate")
@click.argument("what", nargs=-1, metavar="KIND NAME ... KEY=VALUE|KEY- ...")
@namespace_option
@selector_option
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option("--overwrite", is_flag=True, help="Replace existing values.")
@click.option("--list", "listing", is_flag=True, help="List the annotations (after the change, if any).")
@dry_run_option
@click.pass_context
def annotate_(
    ctx: click.Context,
    what: Sequence[str],
    namespace: str | None,
    selector: str,
    everything: bool,
    overwrite: bool,
    listing: bool,
    dry_run: str,
) -> None:
    """Set annotations of objects (KEY=VALUE) or remove them (KEY-).

    \b
    paddock annotate sb quickstart example.org/owner=ann
    paddock annotate sandboxes -l app=web example.org/owner- --overwrite
    """
    from controller.cli.objects.metadata import MetadataField, MetadataRequest, change_metadata

    field = MetadataField("annotations", "annotated", "annotated")
    place = namespace or DEFAULT_NAMESPACE
    change_metadata(
        ctx,
        field,
        MetadataRequest(
            what,
            place,
            selector=selector,
            everything=everything,
            overwrite=overwrite,
            listing=listing,
            dry_run=dry_run == "server",
        ),
    )
