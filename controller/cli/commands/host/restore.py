"""`paddock restore`: runs on the host itself, without a daemon."""

import importlib
from pathlib import Path

import click

from controller.cli.errors import CliError, UsageProblem
from controller.cli.text.output import say


@click.command("restore")
@click.argument("file", metavar="FILE")
@click.option("--config", metavar="FILE", help="The daemon's settings. [default: /etc/paddock/paddock.toml]")
def restore_(file: str, config: str | None) -> None:
    """Replace this host's store with a backup. Stop the daemon first; nothing is done while it runs.

    The backup is verified first, and the old store is kept beside it. The next daemon notices the older store: it
    removes no container that the store lacks until you confirm it.
    """
    settings, app = (importlib.import_module(f"controller.{module}") for module in ("settings", "app.store"))
    try:
        loaded = settings.load_settings(config)
    except settings.SettingsError as error:
        raise UsageProblem(str(error)) from error
    try:
        say(app.restore(loaded, Path(file).absolute()))
    except app.CannotStart as error:
        raise CliError(str(error)) from error
