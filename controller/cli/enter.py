"""Into a box with a command: what `exec` and `shell` share."""

from collections.abc import Mapping, Sequence

import click

from controller.cli.client import connect
from controller.cli.errors import Misused
from controller.cli.exec_relay import INTERRUPTED, carry
from controller.cli.output import say
from controller.cli.progress import waiting_for
from controller.cli.terminal import is_terminal
from controller.client.sandbox import Sandbox


def enter(
    ctx: click.Context,
    namespace: str,
    name: str,
    command: Sequence[str],
    *,
    with_stdin: bool,
    tty: bool,
    env: Mapping[str, str],
    working_dir: str = "",
    timeout_seconds: float | None = None,
    raw_output: bool = False,
) -> int:
    """Run a command in a sandbox with this process's streams; gives its exit code."""
    if tty and not is_terminal():
        raise Misused("stdin is no terminal: leave -t out, or run this where somebody types")
    box = Sandbox(connect(ctx), namespace, name)
    options = {"env": env, "working_dir": working_dir, "timeout_seconds": timeout_seconds}
    with box.start(command, stdin=with_stdin, tty=tty, **options) as running:  # type: ignore[arg-type]
        try:
            with waiting_for(f"sandbox/{name}"):
                running.wait_begun()
            return carry(running, with_stdin=with_stdin, tty=tty, raw_output=raw_output)
        except KeyboardInterrupt:
            return INTERRUPTED


def let_go(
    ctx: click.Context,
    namespace: str,
    name: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    working_dir: str = "",
    timeout_seconds: float | None = None,
) -> None:
    """Start a command that goes on by itself; prints its ID."""
    box = Sandbox(connect(ctx), namespace, name)
    with waiting_for(f"sandbox/{name}"):
        begun = box.detach(command, env=env, working_dir=working_dir, timeout_seconds=timeout_seconds)
    say(begun.id)
