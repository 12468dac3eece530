"""`paddock execs`."""

import json
from collections.abc import Sequence

import click

from controller.cli.client import connect
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, sandbox_name
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
    sandbox = Sandbox(client, namespace or DEFAULT_NAMESPACE, plain)
    if kill is not None:
        execution = sandbox.kill_exec(kill)
        note(
            f"{execution.id} has already ended ({execution.state})"
            if execution.finished_time
            else f"{execution.id} is being killed"
        )
        return
    if output is not None:
        say((json_text if output == "json" else yaml_text)(client.get(f"{sandbox.path}/execs")))
        return
    rows = [
        [
            execution.id,
            execution.state,
            "" if execution.exit_code is None else str(execution.exit_code),
            execution.started_time,
            _line(execution.command),
        ]
        for execution in sandbox.execs()
    ]
    if rows:
        say_table(columns([["ID", "STATE", "EXIT", "STARTED", "COMMAND"], *rows]))
    else:
        note(f"No detached commands found in sandbox `{plain}`.")


def _line(command: Sequence[str]) -> str:
    """Format a command in one line, cut to fit; unsafe words are JSON strings."""
    line = " ".join(word if word.isprintable() and " " not in word else json.dumps(word) for word in command)
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."
