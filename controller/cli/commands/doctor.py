"""`paddock doctor`: checks of the host itself, with or without a daemon."""

import importlib
import logging
from typing import Any

import click

from controller.cli.errors import UsageProblem
from controller.cli.output import columns, json_text, note, say, say_table

_PROBLEM, _WARNING, _OK = "problem", "warning", "ok"


@click.command("doctor")
@click.option("--config", metavar="FILE", help="The daemon's settings. [default: /etc/paddock/paddock.toml]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def doctor_(ctx: click.Context, config: str | None, output: str) -> None:
    """Check this host: engine, kernel, guard, folders, clock, disk, store, sockets. Exit code 1 if there is a problem.

    Of many hosts, also checks which others run, answer this one, and are of its version.

    Each finding has its meaning for sandboxes and an action. Nothing is changed, and no daemon is needed. Run it as
    the daemon's user (root), with the daemon's settings.
    """
    settings = importlib.import_module("controller.settings")
    try:
        loaded = settings.load_settings(config)
    except settings.SettingsError as error:
        raise UsageProblem(str(error)) from error
    logs = importlib.import_module("structlog")  # which would print on stdout
    logs.configure(wrapper_class=logs.make_filtering_bound_logger(logging.CRITICAL))
    # Imported by name, so that no other command loads the daemon's packages.
    found = importlib.import_module("controller.app.doctor").examine(loaded)
    if output == "json":
        say(json_text([_data(each) for each in found]))
    else:
        _print(found)
    ctx.exit(int(any(each.grade == _PROBLEM for each in found)))


def _data(finding: Any) -> dict[str, str]:
    return {name: str(getattr(finding, name)) for name in ("check", "grade", "found", "meaning", "action")}


def _print(found: Any) -> None:
    say_table(columns([("CHECK", "GRADE", "FOUND"), *((each.check, str(each.grade), each.found) for each in found)]))
    for each in found:
        if each.grade != _OK:
            say(f"\n{each.check} ({each.grade}): {each.found}\n  means: {each.meaning}\n  to do: {each.action}")
    problems, warnings = (sum(each.grade == grade for each in found) for grade in (_PROBLEM, _WARNING))
    note(f"\n{problems} problem(s), {warnings} warning(s)")
