"""`paddock shell`."""

import click

from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, raw_option, sandbox_name

# bash where the image has it, else sh. `exec`, so that Ctrl-C and the exit code are the shell's own.
_SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh")


@click.command("shell")
@click.argument("name")
@namespace_option
@raw_option
@click.pass_context
def shell_(ctx: click.Context, name: str, namespace: str | None, raw: bool) -> None:
    """Open a shell in a sandbox: bash if it has one, else sh. In a pipe, commands are read from stdin.

    Escape sequences are filtered as for `paddock exec -t`.

    \b
    paddock shell quickstart
    """
    import os

    from controller.cli.runs.exec_relay import exec_attached
    from controller.cli.text.terminal import is_terminal

    env = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    place, tty = namespace or DEFAULT_NAMESPACE, is_terminal()
    env = env if tty else {}
    ctx.exit(exec_attached(ctx, place, sandbox_name(name), _SHELL, with_stdin=True, tty=tty, env=env, raw_output=raw))
