"""`paddock run`."""

from collections.abc import Sequence

import click

from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, raw_option


@click.command("run")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARG ...]]", type=click.UNPROCESSED)
@namespace_option
@click.option(
    "--template",
    default="",
    metavar="NAME",
    help="A SandboxTemplate; node, bun and deno are known. [default: by the script, else paddock/python:1]",
)
@click.option("--image", default="", metavar="IMAGE", help="A container image, instead of a template.")
@click.option("-d", "--detach", is_flag=True, help="Print the sandbox's name and leave it running.")
@click.option("--rm", is_flag=True, help="With -d, remove it when it ends, not a day later; without, it always is.")
@click.option("--name", default="", metavar="NAME", help="Name of the sandbox. [default: run-ID]")
@click.option("--level", default="", metavar="NAME", help="Security level. [default: the template's]")
@click.option("--host", default="", metavar="NAME", help="The host to run on. [default: the scheduler's choice]")
@click.option("--gpus", default="", metavar="NUMBER|all|device=ID[,ID]", help="GPUs, as `docker run --gpus`.")
@click.option("-f", "--file", "script", default="", metavar="FILE", help="A script: .py, .js, .ts, .sh, .pl or .rb.")
@click.option("-c", "--code", default="", metavar="CODE", help="Code to run: Python, or what the template speaks.")
@click.option("-i", "--stdin", "with_stdin", is_flag=True, help="Pass stdin to the command.")
@click.option("-t", "--tty", is_flag=True, help="Allocate a terminal for the command.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Kill the command after this time (exit code 124); 0: never. [default: the daemon's, 5m; with -t: never]",
)
@click.option(
    "--wait",
    "wait_seconds",
    type=DURATION,
    default="60s",
    help="How long to wait until the sandbox is Ready. [default: 60s]",
)
@raw_option
@click.pass_context
def run_(
    ctx: click.Context,
    command: Sequence[str],
    namespace: str | None,
    template: str,
    image: str,
    detach: bool,
    rm: bool,
    name: str,
    level: str,
    host: str,
    gpus: str,
    script: str,
    code: str,
    with_stdin: bool,
    tty: bool,
    env: Sequence[str],
    timeout: float | None,
    wait_seconds: float,
    raw: bool,
) -> None:
    """Run one command, script or piece of code in a new sandbox, and remove it afterwards.

    A ready member of the template's pool is used if there is one. Arguments after `--` are the command, or the
    arguments of the script or code. The exit code is that of the command. On a terminal, escape sequences in the
    output are filtered as for `paddock exec`.

    With -d it is the main command of a sandbox that stays: `paddock logs -f NAME`, `paddock sandbox stop NAME`,
    `paddock delete sandbox/NAME`.

    \b
    paddock run -c 'print(6 * 7)'
    paddock run -f script.py -- --verbose
    paddock run --template deno -c 'console.log("Hello!")'
    paddock run -d --template bun -f script.ts
    paddock run --rm -i --image paddock/python:1 -- python3 - < script.py
    """
    if template and image:
        raise click.UsageError("--template and --image exclude each other; give one")
    if sum(map(bool, (script, code))) > 1 or not (script or code or command):
        raise click.UsageError("nothing to run; give one of -f FILE, -c CODE or -- COMMAND")
    if detach and (with_stdin or tty or raw):
        raise click.UsageError("-d leaves no one to talk to; leave -i, -t and --raw out")
    variables = _variables(env)
    from controller.cli import run
    from controller.cli.errors import UsageProblem
    from controller.cli.terminal import is_terminal

    if tty and not is_terminal():
        raise UsageProblem("stdin is not a terminal; leave -t out, or run this in a terminal")
    template = template if template or image else run.template_for(script)
    job = run.Job.of(command, script, code, run.runtime_of(template, image))
    place, asked = namespace or DEFAULT_NAMESPACE, run.Asked(name, template, image, level, run.Gpus.parse(gpus), host)
    if detach:
        click.echo(run.start_detached(ctx, place, asked, job, variables, wait_seconds, timeout, rm=rm))
        return
    with run.temporary_sandbox(ctx, place, asked, wait_seconds) as sandbox:
        options = {"with_stdin": with_stdin, "tty": tty, "raw_output": raw}
        code_ = run.run_job(job, sandbox, variables, timeout_seconds=timeout, **options)
    ctx.exit(code_)


def _variables(env: Sequence[str]) -> dict[str, str]:
    if any(not each.partition("=")[0] or "=" not in each for each in env):
        raise click.UsageError("--env takes NAME=VALUE")
    return dict(each.split("=", 1) for each in env)
