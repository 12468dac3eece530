"""The command of an exec, checked before anything is sent."""

import json
from collections.abc import Sequence

_SHOWN_CHARACTERS = 60


def words_of(command: Sequence[str], method: str) -> list[str]:
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
