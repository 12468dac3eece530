"""`paddock fork`: sandboxes that begin as another one is now."""

import sys

import click

from controller.cli.commands.sandbox.snapshot import sandbox_of, snapshot_client
from controller.cli.options import namespace_option
from controller.cli.text.output import note, say


@click.command("fork")
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 100), default=1, help="How many.  [default: 1]")
@click.option("--name-prefix", default="", metavar="PREFIX", help="Beginning of their names.  [default: NAME]")
@click.option("--snapshot", "source", default="", metavar="SNAPSHOT", help="Begin from this one; default: from now.")
@click.option("--allow-partial", is_flag=True, help="Create as many as the quotas have room for.")
@namespace_option
@click.pass_context
def fork_(
    ctx: click.Context,
    name: str,
    count: int,
    name_prefix: str,
    source: str,
    allow_partial: bool,
    namespace: str | None,
) -> None:
    """Create sandboxes with the files that a sandbox has now: root layer, folders in memory, and volumes of their own.

    \b
    paddock fork quickstart --count 3
    """
    client = snapshot_client(ctx, namespace)
    forks = client.fork(
        sandbox_of(name), count=count, name_prefix=name_prefix, snapshot=source, allow_partial=allow_partial
    )
    for each in forks["items"]:
        say(f"sandbox.paddock/{each['metadata']['name']} created from sandboxsnapshot/{forks['snapshot']}")
    if forks["items"] and (contexts := client.contexts(sandbox_of(name))):
        note(f"variables of its code contexts ({', '.join(contexts)}) are not copied, their files are")
    for reason in forks["reasons"]:
        note(f"no more: {reason}")
    if len(forks["items"]) < count:
        sys.exit(1)
