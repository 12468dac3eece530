"""Filter for a sandbox's output on this terminal: harmful escape sequences are removed.

An escape sequence can set the window's title, write and read the clipboard, have the terminal type an answer, print, or
leave it unusable. Two sets are allowed:

* for text (`logs`, and `exec` without a terminal): colours, and moves within the line, as progress bars use them;
* for a screen (`exec -t`, `shell`): those of full-screen programs. Modes that they leave on are reset at the end.
  Queries and strings (OSC, DCS, APC, PM, SOS, and `ESC k`, the title of GNU screen) are never allowed.

An allowed sequence is written whole, any other not at all, so chunking does not matter.
"""

import codecs
import contextlib
import re
from types import TracebackType
from typing import BinaryIO, Self

_TEXT = re.compile("[^\x00-\x06\x0e-\x1f\x7f-\x9f]+")  # with BEL, BS, TAB, LF, VT, FF and CR
_STRING = re.compile(r"\x1b[]PX^_k]")
_STRING_END = re.compile("[\x07\x18\x1a\x1b\x9c\n]")  # LF, too: a string without an end hides one line of a log
_CSI = re.compile(r"\x1b\[([<-?]?)([0-?]{0,64})([ -/]{0,4})([@-~])")
_ESCAPE = re.compile(r"\x1b(?!\[)([ -/]{0,4})([0-~])")
_BEGUN = re.compile(r"\x1b(?:\[[<-?]?[0-?]{0,64}[ -/]{0,4}|[ -/]{0,4})")
_NUMBERS = re.compile(r"[0-9:;]*")
_IN_LINE = "mCDGK"
_ON_SCREEN = "@ABCDEFGHIJKLMPSTXZ`abdefgmrsu"
# Modes of full-screen programs: keys, video, margins, mouse, focus, the other screen, pasting, whole frames at once.
_PRIVATE_MODES = frozenset(
    {1, 5, 6, 7, 12, 25, 45, 47, 66, 69, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1034, 1047, 1048, 1049}
    | {2004, 2026}
)
_MODES = frozenset((4, 34))  # insert, and the cursor's shape
_ON_AT_FIRST = frozenset((7, 25))  # lines wrap, the cursor is shown
_NOT_KEPT = frozenset((12, 34, 1007, 1034, 1048))  # as the terminal's owner has set them, or no state
_SHIFT_OUT, _SHIFT_IN = "\x0e", "\x0f"


class TerminalFilter:
    """Filter of one stream in chunks of any size. `screen`: for a program with its own terminal."""

    def __init__(self, *, screen: bool = False) -> None:
        self._screen = screen
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # an incomplete sequence
        self._in_string = False
        self._undo: dict[str, str] = {}  # sequences that reset the terminal, by what was changed

    def feed(self, data: bytes) -> bytes:
        """Filter one chunk; return what may be shown now."""
        return self._filter(self._decoder.decode(data)).encode()

    def end(self) -> bytes:
        """End the stream: return the rest and the sequences that reset the terminal. Resets the filter."""
        remainder = self._filter(self._decoder.decode(b"", final=True)) + "".join(self._undo.values())
        self._held = ""
        self._in_string = False
        self._undo = {}
        return remainder.encode()

    def _filter(self, addition: str) -> str:
        """Return the text without sequences that change more than its looks; an unfinished one waits for its end."""
        text, self._held = self._held + addition, ""
        output, at = [], 0
        while at < len(text):
            if self._in_string:
                at = self._after_string(text, at)
            elif plain := _TEXT.match(text, at):
                output.append(plain[0])
                at = plain.end()
            elif text[at] != "\x1b":
                output.append(self._control(text[at]))
                at += 1
            elif match := _STRING.match(text, at):
                self._in_string = True
                at = match.end()
            elif match := _CSI.match(text, at):
                output.append(self._csi(match))
                at = match.end()
            elif match := _ESCAPE.match(text, at):
                output.append(self._escape(match))
                at = match.end()
            else:
                beginning = _BEGUN.match(text, at)
                assert beginning is not None  # an ESC is enough for it
                if beginning.end() == len(text):
                    self._held = beginning[0]
                at = beginning.end()
        return "".join(output)

    def _after_string(self, text: str, at: int) -> int:
        match = _STRING_END.search(text, at)
        if match is None:
            return len(text)
        self._in_string = False
        return match.start() if match[0] in "\x1b\n" else match.end()

    def _control(self, char: str) -> str:
        """Filter other control characters: only those that choose a character set pass."""
        if not self._screen or char not in (_SHIFT_OUT, _SHIFT_IN):
            return ""
        self._note_change("shift", _SHIFT_IN, on=char == _SHIFT_OUT)
        return char

    def _csi(self, match: "re.Match[str]") -> str:
        """Return the control sequence, or its allowed part."""
        private, numbers, between, final = match.groups()
        if not _NUMBERS.fullmatch(numbers):
            return ""
        kind = private + between + final
        if kind == "m":
            self._note_change("style", "\x1b[m", on=bool(numbers.strip("0;")))
        if not self._screen:
            return match[0] if len(kind) == 1 and final in _IN_LINE else ""
        if kind in ("h", "l", "?h", "?l"):
            return self._modes(private, numbers, on=final == "h")
        if kind == "r":
            self._note_change("margins", "\x1b7\x1b[r\x1b8", on=bool(numbers))
        elif kind == " q":
            self._note_change("cursor", "\x1b[0 q", on=bool(numbers.strip("0")))
        elif kind == ">m" and numbers.partition(";")[0] == "4":  # keys with modifiers, as vim asks for them
            self._note_change("keys", "\x1b[>4m", on=";" in numbers)
            return match[0]
        elif kind == "T" and ";" in numbers:
            return ""  # a way of mouse tracking that waits for answers
        passes = kind in (" q", "!p", "?J", "?K") or (len(kind) == 1 and final in _ON_SCREEN)
        return match[0] if passes else ""

    def _modes(self, private: str, numbers: str, *, on: bool) -> str:
        known_modes = _PRIVATE_MODES if private else _MODES
        modes = [int(digits) for digits in numbers.split(";") if digits.isdigit() and int(digits) in known_modes]
        for mode in modes:
            if mode not in _NOT_KEPT:
                first = mode in _ON_AT_FIRST
                self._note_change(f"{private}{mode}", f"\x1b[{private}{mode}{'h' if first else 'l'}", on=on != first)
        return f"\x1b[{private}{';'.join(map(str, modes))}{'h' if on else 'l'}" if modes else ""

    def _escape(self, match: "re.Match[str]") -> str:
        """Return an escape sequence of two or three characters if it is allowed."""
        between, final = match.groups()
        if not self._screen:
            return ""
        if between in ("(", ")", "*", "+"):
            self._note_change(between, f"\x1b{between}B", on=final != "B")
            return match[0]
        if not between and final in "=>":
            self._note_change("keypad", "\x1b>", on=final == "=")
        return match[0] if not between and final in "78=>DEHMc" else ""

    def _note_change(self, what: str, undo: str, *, on: bool) -> None:
        self._undo.pop(what, None)
        if on:
            self._undo[what] = undo


class Output:
    """One of this process's streams for a sandbox's output: filtered on a terminal, else raw."""

    def __init__(self, stream: BinaryIO, *, raw: bool = False, screen: bool = False) -> None:
        """`raw`: never filter."""
        self._stream = stream
        self._filter = None if raw or not stream.isatty() else TerminalFilter(screen=screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._filter is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                self._write(self._filter.end())

    def write(self, data: bytes) -> None:
        """Write and flush."""
        self._write(data if self._filter is None else self._filter.feed(data))

    def _write(self, data: bytes) -> None:
        if data:
            self._stream.write(data)
            self._stream.flush()
