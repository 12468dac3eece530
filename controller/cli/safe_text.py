"""Untrusted text made safe for a terminal: control and direction characters are shown as escapes.

Names and messages come from authors of specs, or from inside a sandbox.
"""

import re

# Control characters (C1 too: U+009B starts a sequence by itself) except tab and line feed, bidirectional marks,
# line separators, surrogates.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def plain(text: str) -> str:
    """Escape unsafe characters, such as `\\x1b` for ESC."""
    return UNSAFE.sub(lambda match: _escape(ord(match[0])), text)


def one_line(text: str) -> str:
    """Escape text to one line, for a table cell: it can't add a row."""
    return plain(text).translate(_BREAKS)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
