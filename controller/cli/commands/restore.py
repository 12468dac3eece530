"""`paddock restore`: on the host itself, while no daemon runs."""

import importlib
from pathlib import Path

import click

from controller.cli.errors import CliError, Misused
from controller.cli.output import note, say


@click.command("restore")
@click.argument("file", metavar="FILE")
@click.option("--config", metavar="FILE", help="The daemon's settings. [default: /etc/paddock/paddock.toml]")
def restore_(file: str, config: str | None) -> None:
    """Put a backup in the place of this host's store. Stop the daemon first; nothing is done while one runs.

    The backup is checked first, and what was there is kept beside it. A daemon that starts then sees that its store is
    an older one: it keeps what is stored, and removes no container that is not, until you have looked.
    """
    settings, app = (importlib.import_module(f"controller.{each}") for each in ("settings", "app.store"))
    try:
        loaded = settings.load_settings(config)
    except settings.SettingsError as error:
        raise Misused(str(error)) from error
    try:
        say(app.restore(loaded, Path(file).absolute()))
    except app.CannotStart as error:
        raise CliError(str(error)) from error
    note("start the daemon now; it tells in its log which file to remove once you have looked at the containers")
