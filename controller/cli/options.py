"""Options that several commands share, and flags written as kubectl's users write them (`--wait=false`)."""

import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from controller.cli.errors import UsageProblem
from controller.cli.habits.hints import full_name, is_slip

if TYPE_CHECKING:
    from paddock._client.server import Server

F = TypeVar("F", bound=Callable[..., Any])
_SUMMARY = 200  # letters, more than any has
_FLAG_VALUES = {"true": True, "false": False}


class Group(click.Group):
    """Group whose help has the whole summary of each command: click cuts it at the end of the line."""

    group_class = type  # groups below it are such, too

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, full_name(cmd_name, self.commands))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            likely = [name for name in error.possibilities or () if is_slip(error.command_name, name)]
            raise click.NoSuchCommand(error.command_name, possibilities=likely, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(_SUMMARY))
            for name, command in commands.items()
            if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def split_flag_values(command: click.Command, arguments: Sequence[str]) -> list[str]:
    """Rewrite each `--flag=true` or `--flag=false` as click expects it; words after `--` stay as they are.

    So do those after the first positional of a command whose options end there.
    """
    at = arguments.index("--") if "--" in arguments else len(arguments)
    if not command.allow_interspersed_args and not isinstance(command, click.Group):
        at = options_end(command, arguments)
    flags = _flags(command)
    return [word for argument in arguments[:at] for word in _rewrite(argument, flags)] + list(arguments[at:])


def options_end(command: click.Command, arguments: Sequence[str]) -> int:
    """Return the index of the first word that is neither an option of the command nor the value of one."""
    options = (option for option in command.params if isinstance(option, click.Option) and not option.is_flag)
    with_value = {name for option in options for name in option.opts}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] not in ("-", "--"):
        at += 1 + _takes_next(arguments[at], with_value)
    return min(at, len(arguments))


def _takes_next(word: str, with_value: Collection[str]) -> bool:
    """Return True if the value of this option is the next word: `--name`, `-e`, and the last of `-ite`."""
    if word.startswith("--"):
        return word in with_value
    at = next((at for at, letter in enumerate(word[1:], 1) if f"-{letter}" in with_value), 0)
    return at == len(word) - 1 and at > 0


def _flags(command: click.Command) -> dict[str, click.Option]:
    """Return the boolean flags of a command and its sub-commands, by name."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    flags = {name: flag for subcommand in below for name, flag in _flags(subcommand).items()}
    own_flags = (option for option in command.params if isinstance(option, click.Option) and option.is_bool_flag)
    return flags | {name: flag for flag in own_flags for name in flag.opts if name.startswith("--")}


def _rewrite(word: str, flags: dict[str, click.Option]) -> list[str]:
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


class Target(NamedTuple):
    """Daemon and namespace given before the command; None: not given."""

    address: str | None = None
    context: str | None = None
    namespace: str | None = None


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
            self.fail(f"`{value}` is not a valid duration; write 30s, 2m or 1h30m", param, ctx)
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


def located(ctx: click.Context) -> "Server":
    """Return the daemon of this command. Raises ClientError."""
    from paddock._client.server import locate

    target: Target = ctx.find_root().obj
    return locate(target.address, context=target.context)


def namespace_option(command: F) -> F:
    """Add -n; without it that before the command, of PADDOCK_NAMESPACE or of the context is used, else the default."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        callback=_namespace,
        help="The namespace. [default: default; env: PADDOCK_NAMESPACE]",
    )(command)


def _namespace(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    target = ctx.find_root().obj
    if value or target is None:
        return value or os.environ.get("PADDOCK_NAMESPACE")
    from paddock._connect import configured_namespace

    return target.namespace or configured_namespace(target.address, target.context) or None


def sandbox_name(text: str) -> str:
    """Parse `NAME`, or `sandbox/NAME` as other commands print it."""
    kind, slash, name = text.rpartition("/")
    if slash and kind.split(".")[0] not in ("sandbox", "sandboxes", "sb"):
        raise UsageProblem(f"`{kind}` is not supported here; write sandbox/{name}")
    return name


def raw_option(command: F) -> F:
    """Add --raw: show a sandbox's output with all of its escape sequences."""
    return click.option(
        "--raw", is_flag=True, help="Don't filter escape sequences on a terminal; only for output that you trust."
    )(command)


def selector_option(command: F) -> F:
    """Add -l: select objects by label."""
    return click.option(
        "-l",
        "--selector",
        default="",
        metavar="TERMS",
        help="By label: app=web, tier!=db, env in (a,b), !legacy.",
    )(command)


def files_option(command: F) -> F:
    """Add -f (repeatable) and -R."""
    command = click.option("-R", "--recursive", is_flag=True, help="Include the subfolders of a folder given with -f.")(
        command
    )
    return click.option(
        "-f",
        "--filename",
        "files_",
        multiple=True,
        metavar="FILE",
        help="A spec file, a folder of them, or - for stdin. Repeatable.",
    )(command)


_SET_OPTIONS = (
    click.option("--applyset", metavar="NAME", help="The apply set that the objects belong to."),
    click.option("--prune", is_flag=True, help="Delete objects of the set that the files lack. Needs --applyset."),
    click.option("--take-over", is_flag=True, help="Move objects of other sets into this one."),
    click.option("--allow-empty", is_flag=True, help="With --prune: allow empty files, which delete the whole set."),
)


def set_options(command: F) -> F:
    """Add --applyset, --prune, --take-over and --allow-empty."""
    for option in reversed(_SET_OPTIONS):
        command = option(command)
    return command


def set_fields(applyset: str | None, prune: bool, take_over: bool, allow_empty: bool) -> dict[str, Any]:
    """Return the fields of the request; empty without a set. UsageError for conflicting options."""
    set_only = [name for name, on in (("--prune", prune), ("--take-over", take_over)) if on]
    if set_only and not applyset:
        raise click.UsageError(f"{set_only[0]} needs an apply set; add --applyset NAME")
    if allow_empty and not prune:
        raise click.UsageError("--allow-empty needs --prune; add --applyset NAME --prune")
    if not applyset:
        return {}
    return {"applySet": applyset, "prune": prune, "takeOver": take_over, "allowEmpty": allow_empty}
