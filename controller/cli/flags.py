"""Flags written the way kubectl's users write them: `--wait=false`, `--all=true`."""

from collections.abc import Sequence

import click

_WORDS = {"true": True, "false": False}


def plain(command: click.Command, words: Sequence[str]) -> list[str]:
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
    if flag is None or not equals or value.lower() not in _WORDS:
        return [word]
    if _WORDS[value.lower()]:
        return [name]
    return flag.secondary_opts[:1]  # a flag without an opposite is off unless it is given
