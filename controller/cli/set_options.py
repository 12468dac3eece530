"""The options of `apply` and `diff` for apply sets."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--applyset", metavar="NAME", help="Put the objects into this set, so that they can be pruned."),
    click.option("--prune", is_flag=True, help="Delete what is in the set and not in the files. Needs --applyset."),
    click.option("--take-over", is_flag=True, help="Objects that belong to another set may become this one's."),
    click.option("--allow-empty", is_flag=True, help="With --prune: the files may be empty, to delete the whole set."),
)


def set_options(command: F) -> F:
    """--applyset, --prune, --take-over, --allow-empty."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def set_fields(applyset: str | None, prune: bool, take_over: bool, allow_empty: bool) -> dict[str, Any]:
    """The fields of the request; empty without a set. UsageError for what does not go together."""
    asked = [name for name, on in (("--prune", prune), ("--take-over", take_over)) if on]
    if asked and not applyset:
        raise click.UsageError(f"{asked[0]} needs a set of objects: say which with --applyset NAME")
    if allow_empty and not prune:
        raise click.UsageError("--allow-empty is for pruning: say --applyset NAME --prune with it")
    if not applyset:
        return {}
    return {"applySet": applyset, "prune": prune, "takeOver": take_over, "allowEmpty": allow_empty}
