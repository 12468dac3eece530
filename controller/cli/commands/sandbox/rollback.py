"""`paddock rollback`: the files of a snapshot again."""

import click

from controller.cli.commands.sandbox.snapshot import sandbox_of, snapshot_client
from controller.cli.options import namespace_option
from controller.cli.text.output import note, say


@click.command("rollback")
@click.argument("name")
@click.option("--to", "target", required=True, metavar="SNAPSHOT", help="The snapshot.")
@click.option("--no-backup", is_flag=True, help="Take no snapshot of the present files first.")
@namespace_option
@click.pass_context
def rollback_(ctx: click.Context, name: str, target: str, no_backup: bool, namespace: str | None) -> None:
    """Give a sandbox the files of a snapshot again. It gets a new container; what was written since is lost.

    A volume that other sandboxes use, too, keeps its files.

    \b
    paddock rollback quickstart --to before-upgrade
    """
    result = snapshot_client(ctx, namespace).rollback(sandbox_of(name), target, backup=not no_backup)
    if result["backup"]:
        note(f"its files until now: sandboxsnapshot/{result['backup']}")
    say(f"sandbox.paddock/{sandbox_of(name)} rolled back to sandboxsnapshot/{target}")
