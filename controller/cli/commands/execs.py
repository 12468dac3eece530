"""`paddock execs`."""

import json
from collections.abc import Sequence

import click

from controller.cli.client import connect
from controller.cli.commands.logs import sandbox_name
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.output import columns, json_text, note, say, yaml_text

_MOST_LETTERS = 60


@click.command("execs")
@click.argument("name")
@namespace_option
@click.option("--kill", metavar="ID", help="Kill all processes of this one; its log can still be read.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Another form than a table.")
@click.pass_context
def execs_(ctx: click.Context, name: str, namespace: str | None, kill: str | None, output: str | None) -> None:
    """Show the commands of a sandbox that were started with `exec --detach`: those that run, and the last that ended.

    \b
    paddock execs quickstart
    paddock logs quickstart --exec ID
    paddock execs quickstart --kill ID
    """
    from controller.client.sandbox import Sandbox

    plain = sandbox_name(name)
    client = connect(ctx)
    box = Sandbox(client, namespace or DEFAULT_NAMESPACE, plain)
    if kill is not None:
        found = box.kill_exec(kill)
        note(f"{found.id} has ended already ({found.state})" if found.finished_time else f"{found.id} is being killed")
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
        say(columns([["ID", "STATE", "EXIT", "STARTED", "COMMAND"], *rows]))
    else:
        note(f"No detached commands of sandbox `{plain}` are known.")


def _line(command: Sequence[str]) -> str:
    """Its words in one line, cut; what would do something on a terminal is written as JSON does."""
    line = " ".join(each if each.isprintable() and " " not in each else json.dumps(each) for each in command)
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}..."
