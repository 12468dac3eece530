"""`paddock logs`."""

import sys

import click

from controller.cli.client import connect
from controller.cli.errors import Misused
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, raw_option
from controller.cli.output import note


def sandbox_name(text: str) -> str:
    """`NAME`, or `sandbox/NAME` as it stands in the output of other commands."""
    kind, slash, name = text.rpartition("/")
    if slash and kind.split(".")[0] not in ("sandbox", "sandboxes", "sb"):
        raise Misused(f"only sandboxes have this, not `{kind}`; write sandbox/{name}")
    return name


@click.command("logs")
@click.argument("name")
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only so many last lines.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only what was written since: 30s, 10m, 2h.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("-p", "--previous", is_flag=True, help="Of the run before: the one that ended last.")
@click.option("--exec", "exec_id", metavar="ID", help="Of a command that was started with `exec --detach`.")
@click.option("--egress", is_flag=True, help="Instead: what its proxy let through and refused, a line each.")
@raw_option
@click.pass_context
def logs_(
    ctx: click.Context,
    name: str,
    namespace: str | None,
    follow: bool,
    tail: int | None,
    since: float | None,
    timestamps: bool,
    previous: bool,
    exec_id: str | None,
    egress: bool,
    raw: bool,
) -> None:
    """Show what a sandbox's first process has written.

    On a terminal, of the escape sequences in it only colours and moves within the line pass: none sets the title, moves
    over other lines, uses the clipboard or has the terminal answer. --raw lets all through. A pipe gets every byte.
    """
    from controller.cli.terminal_filter import Output
    from controller.client.sandbox import Sandbox

    box = Sandbox(connect(ctx), namespace or DEFAULT_NAMESPACE, sandbox_name(name))
    if exec_id is not None:
        if follow or previous or timestamps or egress or tail is not None or since is not None:
            raise click.UsageError(
                "--exec shows all that was kept of the command's output: it goes with no other option"
            )
        with Output(sys.stdout.buffer, raw=raw) as out:
            out.write(box.exec_log(exec_id))
        return
    if egress and (follow or previous or timestamps):
        raise click.UsageError("--egress goes with --tail and --since alone; its lines bear their times")
    options = {"follow": follow, "tail": tail, "since_seconds": since, "timestamps": timestamps, "previous": previous}
    options["egress"] = egress

    def warn(text: str) -> None:
        note(f"warning: {text}")

    with (
        box.logs(**options, warn=warn) as pieces,  # type: ignore[arg-type]
        Output(sys.stdout.buffer, raw=raw) as out,
    ):
        for piece in pieces:
            out.write(piece)
