"""`paddock doctor`: checks of the host itself, with or without a daemon."""

import importlib
import logging
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

from controller.cli.errors import UsageProblem
from controller.cli.options import located
from controller.cli.text.output import columns, json_text, note, say, say_table

_FIELDS = ("check", "grade", "found", "meaning", "action")
_VARIABLES = ("PADDOCK_SERVER", "PADDOCK_CONTEXT")
_PROBLEM, _WARNING, _OK = "problem", "warning", "ok"


@click.command("doctor")
@click.option("--config", metavar="FILE", help="The daemon's settings. [default: /etc/paddock/paddock.toml]")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def doctor_(ctx: click.Context, config: str | None, output: str) -> None:
    """Check this host: engine, kernel, guard, folders, clock, disk, store, sockets. Exit code 1 if there is a problem.

    Of many hosts, also checks which others run, answer this one, and are of its version.

    Each finding has its meaning for sandboxes and an action. Nothing is changed, and no daemon is needed. Run it as
    the daemon's user (root), with the daemon's settings. With --server or --context that daemon checks its own host,
    with its own settings; it is asked as an admin of every namespace. This host is checked where its socket is silent.
    """
    if _names_a_daemon(ctx):
        if config is not None:
            raise UsageProblem(
                "--config: the daemon that is asked has its own settings; leave out --config or --server"
            )
        findings = _findings_of_daemon(ctx)
        if findings is not None:
            _show(ctx, findings, output)
    _show(ctx, _examine(config), output)


def _names_a_daemon(ctx: click.Context) -> bool:
    """Return True if the caller names a daemon: before the command, or in the environment."""
    target = ctx.find_root().obj
    return bool(target.address or target.context or any(os.environ.get(name) for name in _VARIABLES))


def _findings_of_daemon(ctx: click.Context) -> list[dict[str, str]] | None:
    """Return the findings of that daemon about its host; None where a socket of this host does not answer."""
    client = importlib.import_module("controller.cli.client")
    errors = importlib.import_module("paddock._client.errors")
    try:
        items: list[dict[str, str]] = client.connect(ctx).get(f"{client.PREFIX}/doctor")["items"]
    except errors.Unreachable as error:
        if not located(ctx).socket:
            raise
        note(f"{error}\nThis host is checked without it.")
        return None
    return items


def _examine(config: str | None) -> list[dict[str, str]]:
    """Return the findings about this host, by the settings of its daemon."""
    settings = importlib.import_module("controller.settings")
    try:
        loaded = settings.load_settings(config)
    except settings.SettingsError as error:
        raise UsageProblem(str(error)) from error
    logs = importlib.import_module("structlog")  # which would print on stdout
    logs.configure(wrapper_class=logs.make_filtering_bound_logger(logging.CRITICAL))
    # Imported by name, so that no other command loads the daemon's packages.
    findings = importlib.import_module("controller.app.doctor").examine(loaded)
    return [{name: str(getattr(finding, name)) for name in _FIELDS} for finding in findings]


def _show(ctx: click.Context, findings: Sequence[Mapping[str, str]], output: str) -> NoReturn:
    if output == "json":
        say(json_text(findings))
    else:
        _print(findings)
    ctx.exit(int(any(finding["grade"] == _PROBLEM for finding in findings)))


def _print(findings: Sequence[Mapping[str, str]]) -> None:
    rows = ((finding["check"], finding["grade"], finding["found"]) for finding in findings)
    say_table(columns([("CHECK", "GRADE", "FOUND"), *rows]))
    for finding in findings:
        if finding["grade"] != _OK:
            say("\n{check} ({grade}): {found}\n  means: {meaning}\n  to do: {action}".format(**finding))
    problems, warnings = (sum(finding["grade"] == grade for finding in findings) for grade in (_PROBLEM, _WARNING))
    note(f"\n{problems} problem(s), {warnings} warning(s)")
