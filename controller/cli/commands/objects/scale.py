"""`paddock scale`."""

from collections.abc import Sequence
from typing import Any

import click

from controller.cli.errors import CliError
from controller.cli.objects.patch import change_line, dry_run_option, find_objects, with_version
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, selector_option
from controller.cli.text.output import say


@click.command("scale")
@click.argument("what", nargs=-1, metavar="KIND/NAME ...")
@click.option("--replicas", type=click.IntRange(min=0), required=True, metavar="N", help="Number of warm replicas.")
@click.option("--current-replicas", type=click.IntRange(min=0), metavar="N", help="Only if this is the current number.")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@namespace_option
@selector_option
@dry_run_option
@click.pass_context
def scale_(
    ctx: click.Context,
    what: Sequence[str],
    replicas: int,
    current_replicas: int | None,
    everything: bool,
    namespace: str | None,
    selector: str,
    dry_run: str,
) -> None:
    """Set how many members a pool keeps ready.

    \b
    paddock scale sandboxpool/python --replicas 5
    paddock scale sbp --all --replicas 0
    """
    from controller.cli.client import connect
    from controller.kinds.registry import discover

    client, trial = connect(ctx), dry_run == "server"
    targets = find_objects(client, what, namespace or DEFAULT_NAMESPACE, selector=selector, everything=everything)
    for target in targets:
        kind = discover().by_word(target.resource.plural)
        if kind is None or not kind.scale:
            able = ", ".join(scalable.plural for scalable in discover() if scalable.scale)
            raise CliError(f"{target} has no replicas; name one of {able}")
        before = target.read(client)
        now = _at(before["spec"], kind.scale)
        if current_replicas is not None and now != current_replicas:
            raise CliError(f"{target} has {now} replicas, not {current_replicas}; it was not changed")
        after = target.patch(client, with_version({"spec": _nest(kind.scale, replicas)}, before), dry_run=trial)
        say(change_line(target, "scaled", before, after, dry_run=trial))


def _at(spec: Any, path: Sequence[str]) -> Any:
    for name in path:
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec


def _nest(path: Sequence[str], value: int) -> dict[str, Any]:
    first, *inner_path = path
    return {first: _nest(inner_path, value) if inner_path else value}
