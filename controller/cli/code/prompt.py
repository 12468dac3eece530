"""The prompt of `paddock repl`: Tab lists the live names of the context; each language has its history of lines."""

import os
import readline
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from paddock._client.errors import ClientError

Complete = Callable[[str], tuple[int, Sequence[str]]]
_HISTORY_LINES = 1000
_INDENT = "    "
_DELIMITERS = " \t\n`@#&*()=+[{]}\\|;:'\",<>?"  # a dot, `%`, `!`, `$` and `/` are of what is completed


class Completer:
    """Completer for readline. `complete` returns how many last characters of a line its matches replace, and these."""

    def __init__(self, complete: Complete) -> None:
        self._complete = complete
        self._candidates: list[str] = []

    def __call__(self, _text: str, state: int) -> str | None:
        if state == 0:
            line = readline.get_line_buffer()[: readline.get_endidx()]
            self._candidates = self.candidates(line, readline.get_begidx())
        return self._candidates[state] if state < len(self._candidates) else None

    def candidates(self, line: str, begin: int) -> list[str]:
        """Return what may stand in the place of the line's characters from `begin` on. Tab indents an empty line."""
        if not line.strip():
            return [line[begin:] + _INDENT]
        try:
            replaced, matches = self._complete(line)
        except ClientError:
            return []  # it runs something, or has not begun
        start = line[: len(line) - replaced]
        lines = [start + match for match in matches if match.isprintable()]
        return [candidate[begin:] for candidate in lines if candidate.startswith(line[:begin])]


@contextmanager
def line_editing(language: str, complete: Complete) -> Iterator[None]:
    """Edit lines with completion, and with the history of earlier prompts of this language."""
    history = _history_file(language)
    with suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        history.touch(0o600)
        readline.read_history_file(history)
    earlier = readline.get_current_history_length()
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer_delims(_DELIMITERS)
    readline.set_completer(Completer(complete))
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    try:
        yield
    finally:
        with suppress(OSError):
            readline.append_history_file(readline.get_current_history_length() - earlier, history)


def _history_file(language: str) -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "paddock" / f"repl-{language}"
