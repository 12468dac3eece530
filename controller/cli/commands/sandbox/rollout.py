"""`paddock rollout`: kubectl's words for `restart` and `wait`."""

import time
from collections.abc import Sequence

import click

from controller.cli.client import connect
from controller.cli.commands.sandbox.restart import restart
from controller.cli.errors import CliError
from controller.cli.objects.kinds import Kinds
from controller.cli.objects.watch import Condition, Object, until
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, Group, namespace_option, selector_option
from controller.cli.text.output import say


@click.group("rollout", cls=Group)
def rollout_() -> None:
    """Restart sandboxes, or show their progress, in kubectl's words."""


@rollout_.command("restart")
@click.argument("names", nargs=-1, metavar="sandbox/NAME ...")
@namespace_option
@selector_option
@click.option("--timeout", type=DURATION, default="120s", help="How long to wait for all of them. [default: 120s]")
@click.pass_context
def restart_of(ctx: click.Context, names: Sequence[str], namespace: str | None, selector: str, timeout: float) -> None:
    """Do what `paddock restart` does."""
    restart(connect(ctx), names, namespace or DEFAULT_NAMESPACE, selector, timeout)


@rollout_.command("status")
@click.argument("what", nargs=-1, required=True, metavar="KIND/NAME ...")
@namespace_option
@click.option("--timeout", type=DURATION, default="120s", help="How long to wait. [default: 120s]")
@click.pass_context
def status(ctx: click.Context, what: Sequence[str], namespace: str | None, timeout: float) -> None:
    """Wait until objects are Ready."""
    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE
    deadline, ready = time.monotonic() + timeout, Condition("Ready")

    def done(_name: str, obj: Object | None) -> bool:
        return ready.reached(obj)

    targets = Kinds(client).targets(what, place)
    if not all(target.names for target in targets):
        raise click.UsageError("name the objects to wait for, such as sandbox/quickstart")
    for target in targets:
        if late := until(client, target.resource, place, names=target.names, done=done, deadline=deadline):
            raise CliError(f"not Ready within {timeout:g} s: {', '.join(late)}; see `paddock describe`")
        for name in target.names:
            say(f"{target.resource.word(name)} successfully rolled out")
