"""The end of a container's log, bounded, as text that is safe on any terminal.

A sandbox's output is hostile: control sequences, half characters, NULs (which no database takes), lines without an end.
All of it is escaped here, once for all listeners.
"""

import unicodedata
from dataclasses import dataclass

TAIL_LINES = 20
TAIL_BYTES = 4096
# Control, format (bidirectional overrides, zero width), lone surrogates, private, unassigned, line separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LONGEST_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Tail:
    """At most TAIL_LINES lines of TAIL_BYTES together. `note` says why there are none or fewer ("": complete)."""

    lines: tuple[str, ...] = ()
    note: str = ""


GONE = Tail(note="its container was removed before its log could be read")


def tail_of(data: bytes, note: str = "") -> Tail:
    """Return the last lines in these bytes. Unprintable characters are escaped; only the end of a long log is kept."""
    # A first, generous cut keeps the work small; the exact one comes once it is known how long the escapes are.
    tail = data[-(TAIL_BYTES * _LONGEST_CHARACTER_BYTES) :]
    lines = [printable(line) for line in tail.decode("utf-8", errors="replace").split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    return Tail(_bounded(lines[-TAIL_LINES:]), note)


def _bounded(lines: list[str]) -> tuple[str, ...]:
    """Return as many of the last lines as fit. The first of them is cut at its beginning if it does not fit whole."""
    room, fitting = TAIL_BYTES, list[str]()
    for line in reversed(lines):
        size = len(line.encode()) + 1
        if size > room:
            end = line.encode()[size - room :].decode(errors="ignore") if room > 1 else ""
            fitting += [end] if end else []
            break
        fitting.append(line)
        room -= size
    return tuple(reversed(fitting))


def printable(text: str) -> str:
    """Return the text as one line, with an escape (`\\x1b`) for each invisible or active character."""
    text = text.removesuffix("\r")
    return "".join(_escape(character) if _is_unsafe(character) else character for character in text)


def _is_unsafe(character: str) -> bool:
    return character != "\t" and unicodedata.category(character) in _UNSAFE


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
