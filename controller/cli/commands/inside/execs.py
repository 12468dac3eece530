"""`paddock execs`."""

import json
from collections.abc import Sequence

import click

from controller.cli.client import connect, sandbox_path, segment
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, sandbox_name
from controller.cli.text.output import columns, json_text, note, say, say_table, yaml_text

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
    plain, client = sandbox_name(name), connect(ctx)
    path = f"{sandbox_path(namespace or DEFAULT_NAMESPACE, plain)}/execs"
    if kill is not None:
        execution = client.request("POST", f"{path}/{segment(kill)}/kill")
        note(
            f"{execution['id']} has already ended ({execution['state']})"
            if execution.get("finishedTime")
            else f"{execution['id']} is being killed"
        )
        return
    executions = client.get(path)
    if output is not None:
        say((json_text if output == "json" else yaml_text)(executions))
        return
    rows = [
        [
            execution["id"],
            execution["state"],
            "" if execution.get("exitCode") is None else str(execution["exitCode"]),
            execution["startedTime"],
            _line(execution["command"]),
        ]
        for execution in executions["items"]
    ]
    if rows:
        say_table(columns([["ID", "STATE", "EXIT", "STARTED", "COMMAND"], *rows]))
    else:
        note(f"No detached commands found in sandbox `{plain}`.")


def _line(command: Sequence[str]) -> str:
    """Format a command in one line, cut to fit; unsafe words are JSON strings."""
    line = " ".join(word if word.isprintable() and " " not in word else json.dumps(word) for word in command)
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."
