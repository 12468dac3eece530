"""Errors of the command line: a message on stderr and an exit code."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import IO, Any, TypeVar, cast

import click

from controller.cli.safe_text import plain
from paddock._client.errors import BadAddress, ClientError
from paddock._client.errors import Refused as Refused
from paddock._client.errors import refusal as refusal

F = TypeVar("F", bound=Callable[..., Any])
INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it


class CliError(click.ClickException):
    """`error: ...` on stderr, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(plain(f"error: {self.message}"), file=file, err=file is None)


class UsageProblem(CliError):
    """Wrong use of the command line; exit code 2."""

    exit_code = 2


def as_cli_error(error: ClientError, hint: str = "") -> CliError:
    """Convert a client's error to the error of a command."""
    return (UsageProblem if isinstance(error, BadAddress) else CliError)(error.message + hint)


def drop_stdout() -> None:
    """Drop what stdout still holds: the interpreter would write it at its end, and fail again."""
    with contextlib.suppress(OSError, ValueError):  # a test's stream is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def only_reads(command: F) -> F:
    """Let whoever reads the output stop, as `head` does: the command ends with exit code 0. For one that only reads."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            drop_stdout()
            raise click.exceptions.Exit(0) from None

    return cast("F", run)
