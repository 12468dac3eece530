"""Command and variables of an exec, checked before anything is sent."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN_CHARACTERS = 60


def checked_command(command: Sequence[str], method: str) -> list[str]:
    """The program and its arguments. TypeError for anything else: a string would be taken for its characters.

    `method` is the caller's name, for the message.
    """
    if isinstance(command, str):
        line = command if len(command) <= _SHOWN_CHARACTERS else command[: _SHOWN_CHARACTERS - 3] + "..."
        shown = json.dumps(["sh", "-c", line], ensure_ascii=False)
        raise TypeError(
            f"{method}: the command must be a list of strings, not one string; write {method}({shown}) for a shell's"
            f' line, or {method}(["PROGRAM", "ARGUMENT"]) for a program'
        )
    if isinstance(command, bytes | bytearray | memoryview):
        raise TypeError(f"{method}: the command must be a list of strings, not {type(command).__name__}; decode it")
    words = list(command)
    wrong = [f"item {at} is {type(each).__name__}" for at, each in enumerate(words) if not isinstance(each, str)]
    if wrong:
        raise TypeError(f"{method}: the command must be a list of strings; {', '.join(wrong[:5])}: write str(...)")
    return words


class Secret(str):
    """The name of a secret of the sandbox's namespace, in the place of a variable's value."""

    __slots__ = ()


def as_json(env: Mapping[str, str] | None) -> dict[str, Any]:
    """As a request's body has them."""
    return {name: {"secret": str(each)} if isinstance(each, Secret) else each for name, each in (env or {}).items()}


def as_query(env: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """As a query has them."""
    return [("secret" if isinstance(each, Secret) else "env", f"{name}={each}") for name, each in (env or {}).items()]
