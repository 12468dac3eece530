"""Names of tools for every LLM API: with dots as specified, or with underscores; at most 64 characters."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal

Style = Literal["dots", "underscore"]
STYLES: tuple[Style, ...] = ("dots", "underscore")
Toolset = Literal["basic", "all"]
TOOLSETS: tuple[Toolset, ...] = ("basic", "all")
MOST_CHARACTERS = 64
_HASH_CHARACTERS = 8


def listed_name(name: str, style: Style = "dots") -> str:
    """Return the name as listed. A longer one is cut, and ends in a hash of the whole name."""
    text = name.replace(".", "_") if style == "underscore" else name
    if len(text) <= MOST_CHARACTERS:
        return text
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARACTERS]
    return f"{text[: MOST_CHARACTERS - _HASH_CHARACTERS - 1]}_{digest}"


def by_shown(names: Iterable[str]) -> Mapping[str, str]:
    """Return each tool's own name by every name that a call may use."""
    return {listed_name(name, style): name for name in names for style in STYLES} | {name: name for name in names}
