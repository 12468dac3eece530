"""Options that several commands share, and flags written as kubectl's users write them (`--wait=false`)."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_FLAG_VALUES = {"true": True, "false": False}


def split_flag_values(command: click.Command, words: Sequence[str]) -> list[str]:
    """The words with each `--flag=true` or `--flag=false` as click writes it; what follows `--` stays as it is."""
    at = words.index("--") if "--" in words else len(words)
    flags = _flags(command)
    return [word for each in words[:at] for word in _written(each, flags)] + list(words[at:])


def _flags(command: click.Command) -> dict[str, click.Option]:
    """The boolean flags of a command and of those below it, by the name that sets them."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    found = {name: flag for each in below for name, flag in _flags(each).items()}
    own = (each for each in command.params if isinstance(each, click.Option) and each.is_bool_flag)
    return found | {name: each for each in own for name in each.opts if name.startswith("--")}


def _written(word: str, flags: dict[str, click.Option]) -> list[str]:
    name, equals, value = word.partition("=")
    flag = flags.get(name)
    if flag is None or not equals or value.lower() not in _FLAG_VALUES:
        return [word]
    if _FLAG_VALUES[value.lower()]:
        return [name]
    return flag.secondary_opts[:1]  # a flag without an opposite is off unless it is given


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(ms|s|m|h|d))")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DEFAULT_NAMESPACE = "default"


class Duration(click.ParamType[float]):
    """Seconds, from `30s`, `2m`, `1h30m`, or a plain number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        if re.fullmatch(r"-?\d+(\.\d+)?", text):
            return float(text)
        if not re.fullmatch(rf"({_DURATION.pattern})+", text):
            self.fail(f"`{value}` is no duration; write 30s, 2m or 1h30m", param, ctx)
        return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


DURATION = Duration()


class Size(click.ParamType[int]):
    """Bytes, from `512Mi`, `8Gi`, `2G`, or a plain number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        from controller.kinds.common.quantity import parse_bytes  # slow to import

        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = Size()


def namespace_option(command: F) -> F:
    """-n; the default namespace unless said otherwise."""
    return click.option(
        "-n",
        "--namespace",
        envvar="PADDOCK_NAMESPACE",
        metavar="NAME",
        help="The namespace. [default: default; env: PADDOCK_NAMESPACE]",
    )(command)


def raw_option(command: F) -> F:
    """--raw; a sandbox's output reaches a terminal with all of its escape sequences."""
    return click.option(
        "--raw", is_flag=True, help="On a terminal, let all escape sequences through; for output that you trust."
    )(command)


def selector_option(command: F) -> F:
    """-l; which objects, by their labels."""
    return click.option(
        "-l", "--selector", default="", metavar="TERMS", help="Labels: app=web, tier!=db, env in (a,b), !legacy."
    )(command)


def files_option(command: F) -> F:
    """-f, which may be given often, and -R."""
    command = click.option("-R", "--recursive", is_flag=True, help="Also the folders below a folder named with -f.")(
        command
    )
    return click.option(
        "-f",
        "--filename",
        "files_",
        multiple=True,
        metavar="FILE",
        help="A spec file, a folder of them, or - for stdin. May be given often.",
    )(command)


_SET_OPTIONS = (
    click.option("--applyset", metavar="NAME", help="Put the objects into this set, so that they can be pruned."),
    click.option("--prune", is_flag=True, help="Delete what is in the set and not in the files. Needs --applyset."),
    click.option("--take-over", is_flag=True, help="Objects that belong to another set may become this one's."),
    click.option("--allow-empty", is_flag=True, help="With --prune: the files may be empty, to delete the whole set."),
)


def set_options(command: F) -> F:
    """--applyset, --prune, --take-over, --allow-empty."""
    for option in reversed(_SET_OPTIONS):
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
