"""`paddock exec`."""

import shlex
from collections.abc import Sequence

import click

from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, raw_option, sandbox_name

_AS_USER = "a command runs as the sandbox's user; set `user` in its template, and leave this out"
_OF_DOCKER = {"-u": _AS_USER, "--user": _AS_USER, "--privileged": _AS_USER}


class _Command(click.Command):
    """Command whose error for a word like `-l` tells where `--` belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        raw_args = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            before_name = raw_args[: raw_args.index(error.option_name)] if error.option_name in raw_args else raw_args
            if error.option_name in _OF_DOCKER and not _positionals(self, before_name):
                raise click.UsageError(f"{error.option_name}: {_OF_DOCKER[error.option_name]}", ctx) from error
            if "--" in raw_args:
                raise
            message = (
                f"{error.format_message().rstrip('.')}; put `--` before the command: {_with_separator(self, raw_args)}"
            )
            raise click.UsageError(message, ctx) from error


def _with_separator(command: click.Command, arguments: Sequence[str]) -> str:
    """Return the command line with `--` after the sandbox's name."""
    at = next(iter(_positionals(command, arguments)), 0)
    return f"paddock exec {shlex.join(arguments[: at + 1])} -- {shlex.join(arguments[at + 1 :])}"


def _positionals(command: click.Command, arguments: Sequence[str]) -> list[int]:
    """Return the indexes of the words that are neither options nor their values."""
    options = [option for option in command.params if isinstance(option, click.Option) and not option.is_flag]
    with_value = {name for option in options for name in option.opts}
    return [
        at
        for at, word in enumerate(arguments)
        if not word.startswith("-") and not (at and arguments[at - 1] in with_value)
    ]


@click.command("exec", cls=_Command)
@click.argument("name")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND [ARG ...]", type=click.UNPROCESSED)
@namespace_option
@click.option("-i", "--stdin", "with_stdin", is_flag=True, help="Pass stdin to the command.")
@click.option("-t", "--tty", is_flag=True, help="Allocate a terminal for the command.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME=SECRET",
    help="Environment variable with a secret of the namespace, by name; repeatable.",
)
@click.option("-w", "--workdir", default="", metavar="FOLDER", help="Working directory of the command.")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Kill the command after this time (exit code 124); 0: never. [default: the daemon's, 5m; with -t: never]",
)
@click.option("-d", "--detach", is_flag=True, help="Run it in the background and print its ID (see `paddock execs`).")
@click.option(
    "--context",
    metavar="CONTEXT",
    help="Run COMMAND as code in a code context that keeps its variables: python, javascript, bash, or its name.",
)
@raw_option
@click.option("-c", "--container", hidden=True, expose_value=False, help="As kubectl's; a sandbox is one container.")
@click.pass_context
def exec_(
    ctx: click.Context,
    name: str,
    command: Sequence[str],
    namespace: str | None,
    with_stdin: bool,
    tty: bool,
    env: Sequence[str],
    secrets: Sequence[str],
    workdir: str,
    timeout: float | None,
    detach: bool,
    context: str | None,
    raw: bool,
) -> None:
    """Run a command in a sandbox and exit with its exit code. Ctrl-C and other signals are forwarded to it.

    On a terminal, escape sequences in the output are filtered. Without -t, colours and moves within the line are kept.
    With -t, those of full-screen programs are kept, and the terminal is reset at the end. Titles, clipboard access
    (OSC 52), DCS and queries are always removed, unless --raw is given. A pipe gets every byte.

    It ends with the command, and what that left running (`server &`) ends with it: start a server with -d, or as the
    sandbox's main command.

    \b
    paddock exec quickstart -- python3 -c 'print(6 * 7)'
    echo hello | paddock exec -i quickstart -- cat
    paddock exec -it quickstart -- python3
    paddock exec --secret NPM_TOKEN=npm-token quickstart -- npm publish
    paddock exec -d --timeout 2h quickstart -- python3 train.py
    paddock exec --context python quickstart -- 'x = 6'
    """
    for option, value, assignments in (("--env", "VALUE", env), ("--secret", "SECRET", secrets)):
        if any(not assignment.partition("=")[0] or "=" not in assignment for assignment in assignments):
            raise click.UsageError(f"{option} takes NAME={value}")
    if detach and (with_stdin or tty):
        raise click.UsageError("--detach runs in the background; leave -i and -t out")
    if context and (detach or with_stdin or tty or workdir):
        raise click.UsageError("--context runs code in an interpreter of its own; leave -d, -i, -t and -w out")
    from controller.cli.runs.exec_relay import exec_attached, exec_detached
    from paddock._client.command import Secret

    variables = {name: value for name, _, value in (assignment.partition("=") for assignment in env)}
    variables |= {name: Secret(value) for name, _, value in (assignment.partition("=") for assignment in secrets)}

    place, target = namespace or DEFAULT_NAMESPACE, sandbox_name(name)
    if context:
        from controller.cli.client import connect
        from controller.cli.code.contexts import CodePlace
        from paddock._client.command import as_json

        code = CodePlace(connect(ctx), place, target, context, raw, as_json(variables))
        ctx.exit(code.run(" ".join(command), timeout))
    if detach:
        exec_detached(ctx, place, target, command, env=variables, working_dir=workdir, timeout=timeout)
        return
    streams = {"with_stdin": with_stdin, "tty": tty, "raw_output": raw}
    options = {"env": variables, "working_dir": workdir, "timeout": timeout}
    ctx.exit(exec_attached(ctx, place, target, command, **streams, **options))  # type: ignore[arg-type]
