"""The command line's commands with their options, made from the click tree."""

from collections.abc import Iterator

import click

from controller.cli.main import cli as paddock
from deploy.docs.fields import cell
from deploy.docs.tables import table


def every() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the words and the command of each command of `paddock`."""
    context = click.Context(paddock)

    def below(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield (*words, name), inner
                yield from below((*words, name), inner)

    yield from below((), paddock)


def commands() -> str:
    """Return every command: its words and what it does."""
    rows = ((f"`{' '.join(words)}`", cell(each.get_short_help_str(200))) for words, each in every() if not each.hidden)
    return table(("command", "does"), rows)
