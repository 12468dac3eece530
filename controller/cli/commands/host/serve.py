"""`paddock serve`: the daemon itself."""

import importlib

import click

from controller.cli.errors import UsageProblem


@click.command("serve")
@click.option("--config", metavar="FILE", help="Settings in TOML. [default: /etc/paddock/paddock.toml, if it exists]")
@click.pass_context
def serve_(ctx: click.Context, config: str | None) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C."""
    # Imported by name, so that no other command loads the daemon's packages. structlog would draw tracebacks with rich;
    # requests would guess the encoding of text that names none, with 3 MiB of tables (the engine's is always JSON).
    memory = importlib.import_module("controller.app.memory")
    with memory.without_importing(*memory.UNUSED):
        settings = importlib.import_module("controller.settings")
    try:
        loaded = settings.load_settings(config)
    except settings.SettingsError as error:
        raise UsageProblem(str(error)) from error
    importlib.import_module("controller.app.open_files").raise_limit()
    with memory.without_collection(), memory.without_importing(*memory.UNUSED):
        app = importlib.import_module("controller.app.daemon")
    ctx.exit(app.serve(loaded))
