"""`paddock execs`."""

import json
from collections.abc import Sequence

import click

from controller.cli.client import connect
from controller.cli.commands.logs import sandbox_name
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.output import columns, json_text, note, say, say_table, yaml_text

_MAX_CHARACTERS = 60


@click.command("execs")
@click.argument("name")
@namespace_option
@click.option("--kill", metavar="ID", help="Kill all processes of this command; its log is kept.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: table.")
@click.pass_context
def execs_(ctx: click.Context, name: str, namespace: str | None, kill: str | None, output: str | None) -> None:
    """List commands started with `exec --detach`: running ones and the last finished ones.

    \b
    paddock execs quickstart
    paddock logs quickstart --exec ID
    paddock execs quickstart --kill ID
    """
    from paddock._client.sandbox import Sandbox

    plain = sandbox_name(name)
    client = connect(ctx)
    box = Sandbox(client, namespace or DEFAULT_NAMESPACE, plain)
    if kill is not None:
        found = box.kill_exec(kill)
        note(f"{found.id} has already ended ({found.state})" if found.finished_time else f"{found.id} is being killed")
        return
    if output is not None:
        say((json_text if output == "json" else yaml_text)(client.get(f"{box.path}/execs")))
        return
    rows = [
        [
            each.id,
            each.state,
            "" if each.exit_code is None else str(each.exit_code),
            each.started_time,
            _line(each.command),
        ]
        for each in box.execs()
    ]
    if rows:
        say_table(columns([["ID", "STATE", "EXIT", "STARTED", "COMMAND"], *rows]))
    else:
        note(f"No detached commands found in sandbox `{plain}`.")


def _line(command: Sequence[str]) -> str:
    """Format a command in one line, cut to fit; unsafe words are JSON strings."""
    line = " ".join(each if each.isprintable() and " " not in each else json.dumps(each) for each in command)
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."
