"""Command and variables of an exec, checked before anything is sent."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN_CHARACTERS = 60


def checked_command(command: Sequence[str], method: str) -> list[str]:
    """Return the program and its arguments. TypeError for anything else: a string would be split into characters.

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
    argv = list(command)
    wrong = [f"item {at} is {type(each).__name__}" for at, each in enumerate(argv) if not isinstance(each, str)]
    if wrong:
        raise TypeError(
            f"{method}: the command must be a list of strings; {', '.join(wrong[:5])}; convert with str(...)"
        )
    return argv


class Secret(str):
    """Name of a secret of the sandbox's namespace, used as the value of a variable."""

    __slots__ = ()


def as_json(env: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the variables for a request body."""
    return {name: {"secret": str(each)} if isinstance(each, Secret) else each for name, each in (env or {}).items()}


def as_query(env: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Return the variables for a query string."""
    return [("secret" if isinstance(each, Secret) else "env", f"{name}={each}") for name, each in (env or {}).items()]
