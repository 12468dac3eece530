"""`paddock logs`."""

import sys

import click

from controller.cli.client import connect
from controller.cli.errors import UsageProblem
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, raw_option
from controller.cli.output import note


def sandbox_name(text: str) -> str:
    """Parse `NAME`, or `sandbox/NAME` as other commands print it."""
    kind, slash, name = text.rpartition("/")
    if slash and kind.split(".")[0] not in ("sandbox", "sandboxes", "sb"):
        raise UsageProblem(f"`{kind}` is not supported here; write sandbox/{name}")
    return name


@click.command("logs")
@click.argument("name")
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Show new output as it is written.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only output newer than this: 30s, 10m, 2h.")
@click.option("--timestamps", is_flag=True, help="Prefix each line with its time.")
@click.option("-p", "--previous", is_flag=True, help="Of the previous run.")
@click.option("--exec", "exec_id", metavar="ID", help="Of a command started with `exec --detach`.")
@click.option(
    "--egress", is_flag=True, help="Show the egress log instead: each request that its proxy allowed or refused."
)
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
    """Show the log of a sandbox's main process.

    On a terminal, escape sequences are removed, except colours and moves within the line. --raw keeps all. A pipe gets
    every byte.
    """
    from controller.cli.terminal_filter import Output
    from paddock._client.sandbox import Sandbox

    box = Sandbox(connect(ctx), namespace or DEFAULT_NAMESPACE, sandbox_name(name))
    if exec_id is not None:
        if follow or previous or timestamps or egress or tail is not None or since is not None:
            raise click.UsageError("--exec shows the whole kept output; leave the other options out")
        with Output(sys.stdout.buffer, raw=raw) as out:
            out.write(box.exec_log(exec_id))
        return
    if egress and (follow or previous or timestamps):
        raise click.UsageError("--egress can only be combined with --tail and --since; leave the others out")
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
