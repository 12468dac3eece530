"""Errors of the command line: a message on stderr and an exit code."""

from typing import IO, Any

import click

from controller.cli.safe_text import plain
from paddock._client.errors import BadAddress, ClientError
from paddock._client.errors import Refused as Refused
from paddock._client.errors import refusal as refusal

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it


class CliError(click.ClickException):
    """`error: ...` on stderr, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(plain(f"error: {self.message}"), file=file, err=file is None)


class UsageProblem(CliError):
    """Wrong use of the command line; exit code 2."""

    exit_code = 2


def as_cli_error(error: ClientError) -> CliError:
    """Convert a client's error to the error of a command."""
    return (UsageProblem if isinstance(error, BadAddress) else CliError)(error.message)
