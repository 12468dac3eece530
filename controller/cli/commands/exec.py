"""`paddock exec`."""

from collections.abc import Sequence

import click

from controller.cli.commands.logs import sandbox_name
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, raw_option


@click.command("exec")
@click.argument("name")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND [ARG ...]", type=click.UNPROCESSED)
@namespace_option
@click.option("-i", "--stdin", "with_stdin", is_flag=True, help="Pass stdin to the command.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal, which is shown in this one.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="A variable for the command; repeatable.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME=SECRET",
    help="A variable that holds a secret of the namespace, by its name; repeatable.",
)
@click.option("-w", "--workdir", default="", metavar="FOLDER", help="Where the command runs.")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Kill the command after so long (exit code 124); 0: never. [default: the daemon's, 5m; with -t: never]",
)
@click.option(
    "-d", "--detach", is_flag=True, help="Let it go on without this command, and print its ID (see `paddock execs`)."
)
@raw_option
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
    raw: bool,
) -> None:
    """Run a command in a sandbox; its exit code becomes that of this command. Ctrl-C and other signals go to it.

    On a terminal, escape sequences of its output are filtered: without -t colours and moves within the line pass; with
    -t all that full-screen programs need does, and what they leave switched on is switched off at the end. No title,
    clipboard access (OSC 52), DCS or query that the terminal would answer passes, unless --raw is given, which some
    programs may want (images, prompts that ask where the cursor is). A pipe gets every byte.

    \b
    paddock exec quickstart -- python3 -c 'print(6 * 7)'
    echo hello | paddock exec -i quickstart -- cat
    paddock exec -it quickstart -- python3
    paddock exec --secret NPM_TOKEN=npm-token quickstart -- npm publish
    paddock exec -d --timeout 2h quickstart -- python3 train.py
    """
    for option, value, given in (("--env", "VALUE", env), ("--secret", "SECRET", secrets)):
        if any(not each.partition("=")[0] or "=" not in each for each in given):
            raise click.UsageError(f"{option} takes NAME={value}")
    if detach and (with_stdin or tty):
        raise click.UsageError("--detach lets go of the command: it takes no -i and no -t")
    from controller.cli.exec_relay import enter, let_go
    from controller.client import Secret

    variables = {name: value for name, _, value in (each.partition("=") for each in env)}
    variables |= {name: Secret(value) for name, _, value in (each.partition("=") for each in secrets)}

    if detach:
        let_go(
            ctx,
            namespace or DEFAULT_NAMESPACE,
            sandbox_name(name),
            command,
            env=variables,
            working_dir=workdir,
            timeout_seconds=timeout,
        )
        return
    ctx.exit(
        enter(
            ctx,
            namespace or DEFAULT_NAMESPACE,
            sandbox_name(name),
            command,
            with_stdin=with_stdin,
            tty=tty,
            env=variables,
            working_dir=workdir,
            timeout_seconds=timeout,
            raw_output=raw,
        )
    )
