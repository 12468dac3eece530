"""`paddock wait`."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError, Refused
from controller.cli.objects.kinds import Kinds, Resource
from controller.cli.objects.watch import Goal, Object, goal_option, until
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, selector_option
from controller.cli.text.output import say
from controller.cli.text.progress import Waiting, pulls_shown, waiting_for

_GOALS = "condition=NAME[=STATUS], jsonpath='{PATH}'[=VALUE], create or delete."


@click.command("wait")
@click.argument("what", nargs=-1, metavar="KIND NAME ... | KIND/NAME ...")
@click.option("--for", "goal", required=True, callback=goal_option, metavar="GOAL", help=_GOALS)
@click.option(
    "--timeout", type=DURATION, default="30s", help="How long to wait for all of them together. [default: 30s]"
)
@namespace_option
@selector_option
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.pass_context
def wait_(
    ctx: click.Context,
    what: Sequence[str],
    goal: Goal,
    timeout: float,
    namespace: str | None,
    selector: str,
    everything: bool,
) -> None:
    """Wait for a condition, or until an object is gone; exit code 1 on timeout.

    After a second the reasons are printed on stderr, one line for each new reason.

    \b
    paddock wait --for=condition=Ready sandbox/quickstart --timeout=30s
    paddock wait --for=jsonpath='{.status.launchType}'=Warm sandbox/quickstart
    """
    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE
    deadline = time.monotonic() + timeout
    names_by_resource = _names_by_resource(client, what, place, selector, everything)
    late: list[tuple[Resource, str]] = []
    label = f"{goal} {', '.join(name for names in names_by_resource.values() for name in names)}"
    with waiting_for(label) as waiting, pulls_shown(client, waiting):
        for resource, names in names_by_resource.items():
            done = partial(_done, client, resource, place, goal, waiting)
            late += [
                (resource, name) for name in until(client, resource, place, names=names, done=done, deadline=deadline)
            ]
    if late:
        reasons = [f"{resource.word(name)}: {_why(client, resource, place, name, goal)}" for resource, name in late]
        raise CliError(f"timed out after {timeout:g} s\n" + "\n".join(reasons))


def _names_by_resource(
    client: Client, what: Sequence[str], place: str, selector: str, everything: bool
) -> dict[Resource, list[str]]:
    """Return the names to wait for, by kind."""
    names_by_resource: dict[Resource, list[str]] = {}
    for target in Kinds(client).targets(what, place):
        names = target.names
        if not names:
            if not everything and not selector:
                raise click.UsageError(f"name the {target.resource.plural} to wait for, or add --all or -l")
            items = client.get(target.resource.path(place), labelSelector=selector)["items"]
            names = tuple(entry["metadata"]["name"] for entry in items)
        if names:
            names_by_resource.setdefault(target.resource, []).extend(names)
    if not names_by_resource:
        raise CliError(f"no objects to wait for in namespace {place}; check the selector")
    return names_by_resource


def _done(
    client: Client, resource: Resource, place: str, goal: Goal, waiting: Waiting, name: str, obj: Object | None
) -> bool:
    """Report a reached goal or its obstacle. A missing object is an error for most goals."""
    if obj is None and not goal.may_be_missing:
        client.get(resource.path(place, name))  # raises the server's NotFound
        return False
    reached = goal.reached(obj)
    if reached:
        say(f"{resource.word(name)} {goal.reached_text}")
    elif obj is not None:
        obstacle = goal.why_not(obj)
        waiting.report(resource.word(name), obstacle.reason, obstacle.message, counts=obstacle.counts)
    return reached


def _why(client: Client, resource: Resource, place: str, name: str, goal: Goal) -> str:
    try:
        obj: Mapping[str, Any] = client.get(resource.path(place, name))
    except Refused as error:
        if error.reason != "NotFound":
            raise
        return "does not exist"
    return goal.why_not(obj).message
