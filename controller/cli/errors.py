"""How a command ends when it can't do what was asked: on stderr, in words, with an exit code."""

from typing import IO, Any

import click


class CliError(click.ClickException):
    """`error: ...` on stderr, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=file is None)


class Misused(CliError):
    """The command line itself is wrong."""

    exit_code = 2


class Refused(CliError):
    """The daemon answered with a Status; `reason` is Kubernetes' word for it."""

    def __init__(self, message: str, reason: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.reason, self.code = reason, code


def refusal(body: Any, code: int) -> Refused:
    """The error for a response of that status code, whose body should be a Status."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Refused(f"the server answered {code}, and not as Paddock does; is --server right?", code=code)
    return Refused(str(body.get("message", f"the server answered {code}")), str(body.get("reason", "")), code)
