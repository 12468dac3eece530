"""Text from elsewhere as text that is safe on a terminal: what would move the cursor, or hide or turn round what is
read, is shown as an escape. Names, messages and notes come from whoever wrote a spec, or from inside a box."""

import re

# Control characters (C1 too: U+009B begins a sequence by itself) but for tab and line feed, the marks that turn the
# direction of reading, line separators, half characters.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def plain(text: str) -> str:
    """The text, with `\\x1b` for an escape character and the like."""
    return UNSAFE.sub(lambda found: _escape(ord(found[0])), text)


def in_a_line(text: str) -> str:
    """The same in one line, for a cell of a table: nobody adds a row to it."""
    return plain(text).translate(_BREAKS)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
