"""`paddock restart`."""

import time
from collections.abc import Sequence

import click

from controller.cli.client import Client, connect, segment
from controller.cli.commands.logs import sandbox_name
from controller.cli.errors import CliError
from controller.cli.kinds import Resource
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, selector_option
from controller.cli.output import say
from controller.cli.watch import Condition, Object, until

_SANDBOXES = Resource("sandboxes", "sandbox", "Sandbox", namespaced=True)
_MERGE = "application/merge-patch+json"


@click.command("restart")
@click.argument("names", nargs=-1, metavar="NAME ...")
@namespace_option
@selector_option
@click.option("--timeout", type=DURATION, default="120s", help="How long to wait for all of them. [default: 120s]")
@click.pass_context
def restart_(ctx: click.Context, names: Sequence[str], namespace: str | None, selector: str, timeout: float) -> None:
    """Stop sandboxes and start them again, and wait until they are Ready.

    Files stay, except those in memory. A suspended or paused sandbox runs afterwards.

    \b
    paddock restart quickstart
    paddock restart -l app=web
    """
    restart(connect(ctx), names, namespace or DEFAULT_NAMESPACE, selector, timeout)


def restart(client: Client, names: Sequence[str], place: str, selector: str, timeout: float) -> None:
    """Restart the sandboxes of these names, or of the selector."""
    words = [word for word in names if word not in ("sandbox", "sandboxes", "sb")]
    if bool(words) == bool(selector):
        raise click.UsageError("name the sandboxes to restart, or select them with -l")
    found = client.get(_SANDBOXES.path(place), labelSelector=selector)["items"] if selector else []
    chosen = [sandbox_name(each) for each in words] or [each["metadata"]["name"] for each in found]
    if not chosen:
        raise CliError(f"no sandboxes to restart in namespace {place}; check the selector")
    deadline = time.monotonic() + timeout
    for state, condition in (("Suspended", Condition("Suspended")), ("Running", Condition("Ready"))):
        for name in chosen:
            path = f"namespaces/{segment(place)}/sandboxes/{segment(name)}"
            client.request("PATCH", path, json={"spec": {"runState": state}}, content_type=_MERGE)

        def done(_name: str, obj: Object | None, condition: Condition = condition) -> bool:
            return condition.reached(obj)

        if late := until(client, _SANDBOXES, place, chosen, done, deadline):
            raise CliError(f"not {condition} within {timeout:g} s: {', '.join(late)}; see `paddock why NAME`")
    for name in chosen:
        say(f"{_SANDBOXES.word(name)} restarted")
