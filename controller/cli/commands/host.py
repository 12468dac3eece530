"""`paddock host`: cordon a host, and open it again."""

import click

from controller.cli.commands.host_join import join_
from controller.cli.output import say
from controller.cli.patch import change_line, dry_run_option, find_one, with_version


@click.group("host")
def host_() -> None:
    """Cordon a host and open it again. `paddock get hosts` shows its state.

    \b
    paddock host cordon host
    paddock host uncordon host
    paddock host join b --address 10.0.0.2:9466
    """


@host_.command("cordon")
@click.argument("name")
@dry_run_option
@click.pass_context
def cordon_(ctx: click.Context, name: str, dry_run: str) -> None:
    """Start nothing new on a host. What runs goes on, and is restarted as its spec says."""
    _change(ctx, name, "cordoned", schedulable=False, trial=dry_run == "server")


@host_.command("uncordon")
@click.argument("name")
@dry_run_option
@click.pass_context
def uncordon_(ctx: click.Context, name: str, dry_run: str) -> None:
    """Let sandboxes start on a host again; those that waited for it do."""
    _change(ctx, name, "uncordoned", schedulable=True, trial=dry_run == "server")


host_.add_command(join_)


def _change(ctx: click.Context, name: str, what: str, *, schedulable: bool, trial: bool) -> None:
    from controller.cli.client import connect

    client = connect(ctx)
    host = find_one(client, [f"host/{name}"], "")
    before = host.read(client)
    after = host.patch(client, with_version({"spec": {"schedulable": schedulable}}, before), dry_run=trial)
    say(change_line(host, what, before, after, dry_run=trial))
