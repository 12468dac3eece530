"""Command and variables of an exec, checked before anything is sent."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SHOWN_CHARACTERS = 60


def checked_command(command: Sequence[str], method: str) -> list[str]:
    """Return the program and its arguments. TypeError for anything else: a string would be split into characters.

    `method` is the caller's name, for the message.
    """
    if isinstance(command, str):
        line = command if len(command) <= _SHOWN_CHARACTERS else command[: _SHOWN_CHARACTERS - 3] + "..."
        example = json.dumps(["sh", "-c", line], ensure_ascii=False)
        raise TypeError(
            f"{method}: the command must be a list of strings, not one string; write {method}({example}) for a shell's"
            f' line, or {method}(["PROGRAM", "ARGUMENT"]) for a program'
        )
    if isinstance(command, bytes | bytearray | memoryview):
        raise TypeError(f"{method}: the command must be a list of strings, not {type(command).__name__}; decode it")
    if not isinstance(command, Iterable):
        raise TypeError(
            f"{method}: the command must be a list of strings, not {type(command).__name__}; write"
            f' {method}(["PROGRAM", "ARGUMENT"])'
        )
    argv = list(command)
    wrong = [f"item {at} is {type(word).__name__}" for at, word in enumerate(argv) if not isinstance(word, str)]
    if wrong:
        raise TypeError(
            f"{method}: the command must be a list of strings; {', '.join(wrong[:5])}; convert with str(...)"
        )
    return argv


def checked_line(line: str) -> str:
    """Return the shell line of `run`. TypeError for anything else."""
    if isinstance(line, str):
        return line
    if isinstance(line, list | tuple):
        raise TypeError(f"run: takes a shell line; write exec({list(line)!r}) for a program and its arguments")
    raise TypeError(f'run: takes a shell line, a string, not {type(line).__name__}; write run("ls -l")')


def checked_code(code: str) -> str:
    """Return the code of `run_code`. TypeError for anything else."""
    if not isinstance(code, str | bytes):
        raise TypeError(f'run_code: takes code, a string, not {type(code).__name__}; write run_code("print(1)")')
    return code


class Secret(str):
    """Name of a secret of the sandbox's namespace, used as the value of a variable."""

    __slots__ = ()


def as_json(env: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the variables for a request body."""
    return {
        name: {"secret": str(variable)} if isinstance(variable, Secret) else variable
        for name, variable in (env or {}).items()
    }


def as_query(env: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Return the variables for a query string."""
    return [
        ("secret" if isinstance(variable, Secret) else "env", f"{name}={variable}")
        for name, variable in (env or {}).items()
    ]
