"""`paddock run`."""

from collections.abc import Sequence

import click

from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, raw_option


@click.command("run")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARG ...]]", type=click.UNPROCESSED)
@namespace_option
@click.option("--template", default="", metavar="NAME", help="A SandboxTemplate. [default: paddock/python:1]")
@click.option("--level", default="", metavar="NAME", help="Its security level. [default: the template's]")
@click.option("-f", "--file", "script", default="", metavar="FILE", help="A script: .py, .sh, .js, .pl or .rb.")
@click.option("-c", "--code", default="", metavar="CODE", help="Python code.")
@click.option("-i", "--stdin", "with_stdin", is_flag=True, help="Pass stdin to the command.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal, which is shown in this one.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="A variable for the command; repeatable.")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Kill the command after so long (exit code 124); 0: never. [default: the daemon's, 5m; with -t: never]",
)
@click.option("--wait", "patience", type=DURATION, default="60s", help="How long for the box to be Ready.")
@raw_option
@click.pass_context
def run_(
    ctx: click.Context,
    command: Sequence[str],
    namespace: str | None,
    template: str,
    level: str,
    script: str,
    code: str,
    with_stdin: bool,
    tty: bool,
    env: Sequence[str],
    timeout: float | None,
    patience: float,
    raw: bool,
) -> None:
    """Run one command, script or piece of code in a box of its own, and remove the box.

    The box comes from a pool of the template where one has a ready member. What stands behind `--` is the command, or
    the arguments of the script or code. Its exit code becomes that of this command.
    On a terminal, escape sequences of its output are filtered as `paddock exec --help` says.

    \b
    paddock run -c 'print(6 * 7)'
    paddock run -f script.py -- --verbose
    paddock run --template node -- node --version
    """
    if sum(map(bool, (script, code))) > 1 or not (script or code or command):
        raise click.UsageError("say what to run: -f FILE, -c CODE or -- COMMAND")
    if any(not each.partition("=")[0] or "=" not in each for each in env):
        raise click.UsageError("--env takes NAME=VALUE")
    from controller.cli import run
    from controller.cli.errors import Misused
    from controller.cli.terminal import is_terminal

    if tty and not is_terminal():
        raise Misused("stdin is no terminal: leave -t out, or run this where somebody types")
    job = run.Job.of(command, script, code)
    with run.box(ctx, namespace or DEFAULT_NAMESPACE, template, level, patience) as sandbox:
        variables = dict(each.split("=", 1) for each in env)
        options = {"with_stdin": with_stdin, "tty": tty, "raw_output": raw}
        code_ = run.carry_out(job, sandbox, variables, timeout_seconds=timeout, **options)
    ctx.exit(code_)
