"""JSON with comments and trailing commas, as editors write it. Positions in errors are those of the file."""

import json
import re
from typing import Any

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_VISIBLE = re.compile(r"[^\n]")


def loads(text: str) -> Any:
    """Return the value of a text; numbers are texts, as they are written. Raises JSONDecodeError, RecursionError."""
    return json.loads(_COMMA.sub(_blank, _COMMENT.sub(_blank, text)), parse_int=str, parse_float=str)


def _blank(match: re.Match[str]) -> str:
    """Return spaces in the place of what is no string."""
    return match[0] if match[0].startswith('"') else _VISIBLE.sub(" ", match[0])
