"""How a command ends when it can't do what was asked: on stderr, in words, with an exit code."""

from typing import IO, Any

import click

from controller.cli.safe_text import plain
from controller.client.errors import BadAddress, ClientError
from controller.client.errors import Refused as Refused
from controller.client.errors import refusal as refusal


class CliError(click.ClickException):
    """`error: ...` on stderr, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(plain(f"error: {self.message}"), file=file, err=file is None)


class Misused(CliError):
    """The command line itself is wrong."""

    exit_code = 2


def in_words(error: ClientError) -> CliError:
    """A client's error as the end of a command."""
    return (Misused if isinstance(error, BadAddress) else CliError)(error.message)
