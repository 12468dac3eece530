"""`paddock wait`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError, Refused
from controller.cli.kinds import Kinds, Resource
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, selector_option
from controller.cli.output import say
from controller.cli.polling import until


@dataclass(frozen=True, slots=True)
class _Goal:
    """What to wait for: a condition of that status, or (no condition) that the object is gone."""

    condition: str = ""
    status: str = "True"

    def reached(self, obj: Mapping[str, Any] | None) -> bool:
        if not self.condition or obj is None:
            return obj is None and not self.condition
        found = self.of(obj)
        observed = int(found.get("observedGeneration", 0)) if found else 0
        current = observed >= int(obj["metadata"].get("generation", 0))
        return found is not None and current and str(found["status"]).lower() == self.status.lower()

    def of(self, obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The condition as it is now."""
        conditions = obj.get("status", {}).get("conditions", [])
        wanted = self.condition.lower()
        return next((each for each in conditions if str(each["type"]).lower() == wanted), None)


def _goal(_ctx: click.Context, _param: click.Parameter, value: str) -> _Goal:
    if value == "delete":
        return _Goal()
    word, _, rest = value.partition("=")
    condition, _, status = rest.partition("=")
    if word != "condition" or not condition:
        raise click.BadParameter("write condition=Ready, condition=Ready=False or delete")
    return _Goal(condition, status or "True")


@click.command("wait")
@click.argument("what", nargs=-1, metavar="KIND NAME ... | KIND/NAME ...")
@click.option("--for", "goal", required=True, callback=_goal, metavar="GOAL", help="condition=NAME[=STATUS] or delete.")
@click.option("--timeout", type=DURATION, default="30s", help="How long for all of them together. [default: 30s]")
@namespace_option
@selector_option
@click.option("--all", "everything", is_flag=True, help="All objects of the kind, in the namespace.")
@click.pass_context
def wait_(
    ctx: click.Context,
    what: Sequence[str],
    goal: _Goal,
    timeout: float,
    namespace: str | None,
    selector: str,
    everything: bool,
) -> None:
    """Wait for a condition, or until an object is gone; exit code 1 when the time is over.

    \b
    paddock wait --for=condition=Ready sandbox/quickstart --timeout=30s
    """
    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE
    waiting = _named(client, what, place, selector, everything)

    def done() -> bool:
        for resource, name in list(waiting):
            if goal.reached(_look(client, resource, place, name, goal)):
                waiting.remove((resource, name))
                say(f"{resource.word(name)} {'condition met' if goal.condition else 'deleted'}")
        return not waiting

    names = ", ".join(name for _, name in waiting)
    if not until(done, timeout, f"{goal.condition or 'deletion of'} {names}"):
        reasons = [_why(client, resource, place, name, goal) for resource, name in waiting]
        raise CliError(f"timed out after {timeout:g} s\n" + "\n".join(reasons))


def _named(
    client: Client, what: Sequence[str], place: str, selector: str, everything: bool
) -> list[tuple[Resource, str]]:
    found = []
    for target in Kinds(client).targets(what):
        names = target.names
        if not names:
            if not everything and not selector:
                raise click.UsageError(f"name the {target.resource.plural} to wait for, or say --all or -l")
            items = client.get(target.resource.path(place), labelSelector=selector)["items"]
            names = tuple(each["metadata"]["name"] for each in items)
        found += [(target.resource, name) for name in names]
    if not found:
        raise CliError(f"there is nothing to wait for in namespace {place}")
    return found


def _look(client: Client, resource: Resource, place: str, name: str, goal: _Goal) -> Mapping[str, Any] | None:
    """The object as it is now; None when it is gone, which is an error for all but --for=delete."""
    try:
        found: Mapping[str, Any] = client.get(resource.path(place, name))
    except Refused as error:
        if error.reason != "NotFound" or goal.condition:
            raise
        return None
    return found


def _why(client: Client, resource: Resource, place: str, name: str, goal: _Goal) -> str:
    """What stands in the way, in the words of the object's own conditions."""
    obj = _look(client, resource, place, name, goal)
    if obj is None:
        return f"{resource.word(name)}: gone just now"
    if not goal.condition:
        holders = ", ".join(obj["metadata"].get("finalizers", [])) or "nothing"
        asked = "is being deleted" if "deletionTimestamp" in obj["metadata"] else "was not asked to be deleted"
        return f"{resource.word(name)}: {asked}; held by {holders}"
    found = goal.of(obj)
    if found is None:
        return f"{resource.word(name)}: has no condition {goal.condition} yet"
    return f"{resource.word(name)}: {found['type']}={found['status']} {found['reason']}: {found.get('message', '')}"
