"""Options that many commands share."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(ms|s|m|h|d))")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


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


DEFAULT_NAMESPACE = "default"
