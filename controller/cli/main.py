"""Root of the command line. A command is imported when it is called, so that `paddock version` is quick."""

import errno
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from controller.cli.commands import COMMANDS, load
from controller.cli.errors import INTERRUPTED, CliError, as_cli_error, drop_stdout
from controller.cli.habits import hints
from controller.cli.options import Target, located, options_end, split_flag_values
from controller.version import API_VERSION, VERSION
from paddock._client.errors import BadAddress, ClientError, Refused

_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_EXTERNAL = re.compile("[a-z0-9][a-z0-9-]*")

_WORDS = "controller.cli.main.words"  # the command and its arguments
_HELP = ("help", "options")  # as kubectl has them; `docker help run` is `docker run --help`


def _help_last(command: click.Command, arguments: list[str]) -> list[str]:
    """Return `help COMMAND` as `COMMAND --help`."""
    at = options_end(command, arguments)
    if arguments[at : at + 1] and arguments[at] in _HELP:
        return [*arguments[:at], *arguments[at + 1 :], "--help"]
    return arguments


def _with_advice(error: click.UsageError, words: Sequence[str]) -> click.UsageError:
    """Return the error of a command line with what to write, where its habit is a known one."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    advice = hints.subcommand_advice(words, error.command_name) if isinstance(error, click.NoSuchCommand) else ""
    advice = advice or hints.argument_advice(words)
    if not advice:
        return error
    is_name = isinstance(error, click.NoSuchOption | click.NoSuchCommand)  # whose guesses are not the advice
    text = error.message if is_name else error.format_message()
    return click.UsageError(f"{text.rstrip('.')}; {advice}", error.ctx)


_VERBOSE = re.compile(r"-v(?:=?(\d+))?|--(?:verbose|v)(?:=(\d+))?")  # also as kubectl's: -v=6, --v=6


_WITH_VOLUMES = ("compose", "down", "run")


def _verbose_end(command: click.Command, arguments: list[str]) -> int:
    """Return the index of the first word at which -v is not --verbose: `--`, or a command whose -v is a volume."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    name = options_end(command, arguments)
    name += arguments[name : name + 2] == ["sandbox", "run"]
    return min(at, name) if arguments[name : name + 1] and arguments[name] in _WITH_VOLUMES else at


def _verbose_first(command: click.Command, arguments: list[str]) -> list[str]:
    """Move -v to the front, wherever it stands before `--`."""
    at = _verbose_end(command, arguments)
    matches = [match for match in map(_VERBOSE.fullmatch, arguments[:at]) if match]
    remaining = [argument for argument in arguments[:at] if not _VERBOSE.fullmatch(argument)] + arguments[at:]
    return ["--verbose", *remaining] if any((match[1] or match[2]) != "0" for match in matches) else remaining


def _log_requests(ctx: click.Context) -> None:
    """Print each request of this command on stderr."""
    import logging

    from controller.cli.text.output import note

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record.getMessage())

    log, lines = logging.getLogger("paddock"), Lines()
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    ctx.call_on_close(lambda: log.removeHandler(lines))
    ctx.call_on_close(lambda: log.setLevel(logging.NOTSET))


def _external(path: str) -> click.Command:
    """Return a command that becomes the program `paddock-NAME` of the PATH, as kubectl's plugins do."""

    @click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run(ctx: click.Context, arguments: tuple[str, ...]) -> None:
        target: Target = ctx.find_root().obj
        variables = {
            "PADDOCK_SERVER": target.address,
            "PADDOCK_CONTEXT": target.context,
            "PADDOCK_NAMESPACE": target.namespace,
        }
        environment = {**os.environ, **{name: value for name, value in variables.items() if value}}
        try:
            os.execve(path, [path, *arguments], environment)  # noqa: S606 - the user's own program
        except OSError as error:
            raise CliError(f"{path}: can't be run: {error.strerror}; check that it is a program") from error

    return run


def _scheme_hint(ctx: click.Context, error: ClientError) -> str:
    """Return a hint for a request without TLS that nobody understood: the port may be one with TLS."""
    cause = error.__cause__
    if cause is None or isinstance(error, Refused | BadAddress):
        return ""
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return ""
        cause = cause.__cause__ or cause.__context__
    try:
        server = located(ctx)
    except ClientError:  # this is the error
        return ""
    return (
        "; if its port is one with TLS, write https://" if server.url.startswith("http:") and not server.socket else ""
    )


class LazyGroup(click.Group):
    """Group that imports a command only to run it, or to show its own help."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line. An output that takes nothing is an error, not a traceback."""
        if sys.stdout is None:  # before anything is done, and before a connection gets the number of its descriptor
            CliError("stdout is closed; open it, or add `>/dev/null` to drop the output").show()
            sys.exit(1)
        sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the process
        sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if error.errno not in _CANNOT_WRITE or error.filename is not None:
                raise
            drop_stdout()
            CliError(f"the output can't be written: {error.strerror}; make room, or write it elsewhere").show()
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        arguments = _verbose_first(self, _help_last(self, args))
        ctx.meta[_WORDS] = arguments[options_end(self, arguments) :]
        return super().parse_args(ctx, arguments)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            if (external := shutil.which(f"paddock-{cmd_name}")) and _EXTERNAL.fullmatch(cmd_name):
                return _external(external)
            return None
        return load(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if (advised := _with_advice(error, ctx.meta[_WORDS])) is error:
                raise
            raise advised from error
        except ClientError as error:
            raise as_cli_error(error, _scheme_hint(ctx, error)) from error
        except (KeyboardInterrupt, click.Abort) as error:
            from controller.cli.text.output import note, on_terminal

            if isinstance(error, click.Abort) and not isinstance(error.__context__, KeyboardInterrupt):
                raise  # the end of stdin at a prompt
            if on_terminal():
                note("")  # ends the line of its ^C
            ctx.exit(INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            name, command, remaining = super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            advice = hints.command_advice(args, COMMANDS)
            raise click.UsageError(f"no such command `{args[0]}`; {advice}", ctx) from error
        return name, command, split_flag_values(command, remaining) if command else remaining

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--server",
    metavar="URL",
    help="The daemon: unix:///path/to/socket or http://host:port. [env: PADDOCK_SERVER, PADDOCK_SOCKET]",
)
@click.option("--context", metavar="NAME", help="A context of `paddock config`. [env: PADDOCK_CONTEXT]")
@click.option("-n", "--namespace", metavar="NAME", help="The namespace; also after the command.")
@click.option("-v", "--verbose", is_flag=True, help="Show each request: method, path, status and duration.")
@click.version_option(VERSION, prog_name="paddock", message=f"%(prog)s %(version)s (speaks {API_VERSION})")
@click.pass_context
def cli(ctx: click.Context, server: str | None, context: str | None, namespace: str | None, verbose: bool) -> None:
    """Paddock keeps the sandboxes on this host in the state that your spec files describe.

    Start with `paddock apply -f specs/quickstart.yaml`, then `paddock get sandboxes`.
    """
    if server and context:
        raise click.UsageError("--server and --context exclude each other; give one")
    if verbose:
        _log_requests(ctx)
    ctx.obj = Target(server, context, namespace)
