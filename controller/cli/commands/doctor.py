"""`paddock doctor`: on the host itself, with or without a daemon."""

import importlib
from typing import Any

import click

from controller.cli.errors import Misused
from controller.cli.output import columns, json_text, note, say

_PROBLEM, _WARNING, _OK = "problem", "warning", "ok"


@click.command("doctor")
@click.option("--config", metavar="FILE", help="The daemon's settings. [default: /etc/paddock/paddock.toml]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def doctor_(ctx: click.Context, config: str | None, output: str) -> None:
    """Check this host: engine, kernel, guard, folders, clock, disk, store, sockets. Ends with 1 at a problem.

    For each finding it says what it means for sandboxes and what to do. It changes nothing, needs no daemon, and is
    best run as the daemon's user (root), with the daemon's settings.
    """
    settings = importlib.import_module("controller.settings")
    try:
        loaded = settings.load_settings(config)
    except settings.SettingsError as error:
        raise Misused(str(error)) from error
    # By name, so that no other command ever loads the rooms behind it.
    found = importlib.import_module("controller.app.doctor").examine(loaded)
    if output == "json":
        say(json_text([_data(each) for each in found]))
    else:
        _tell(found)
    ctx.exit(int(any(each.grade == _PROBLEM for each in found)))


def _data(finding: Any) -> dict[str, str]:
    return {name: str(getattr(finding, name)) for name in ("check", "grade", "found", "meaning", "action")}


def _tell(found: Any) -> None:
    say(columns([("CHECK", "GRADE", "FOUND"), *((each.check, str(each.grade), each.found) for each in found)]))
    for each in found:
        if each.grade != _OK:
            say(f"\n{each.check} ({each.grade}): {each.found}\n  means: {each.meaning}\n  to do: {each.action}")
    problems, warnings = (sum(each.grade == grade for each in found) for grade in (_PROBLEM, _WARNING))
    note(f"\n{problems} problem(s), {warnings} warning(s)")
