"""Variables of a Compose file: `$X`, `${X}`, `${X:-default}`, `${X:?message}`, `${X:+other}`; `$$` is a dollar.

Values come from the caller alone: no environment and no `.env` file is read.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from controller.documents.compose.part import EXTENSION, OURS, Part
from controller.documents.yaml_tree import Node

MAX_LETTERS = 4 << 20  # of all texts with variables in them, once replaced
_USE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<how>:?[-?+])(?P<rest>[^{}$]*))?\}|)"
)
_BAD = "`$` starts a variable: write `${NAME}` or `${NAME:-default}` (not nested), or `$$` for a dollar sign"


class Replacer:
    """Replaces the variables of one file. `left` bounds what they may grow to."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values, self._left = values, MAX_LETTERS

    def replaced(self, part: Part) -> Node:
        """Return the value with its variables replaced; problems are in the part's report. Keys have none."""
        node = part.node
        if node.fields is not None:
            fields = {
                name: (key, node.fields[name][1] if _is_foreign(name) else self.replaced(each))
                for (name, each), (key, _) in zip(part.fields().items(), node.fields.values(), strict=True)
            }
            return replace(node, fields=fields)
        if node.items is not None:
            return replace(node, items=[self.replaced(each) for each in part.items()])
        if not isinstance(node.value, str) or "$" not in node.value:
            return node
        text = _USE.sub(lambda found: self._value(found, part), node.value)
        self._left -= len(text)
        if self._left < 0:
            part.refuse(f"the file's variables make more than {MAX_LETTERS >> 20} MiB of text; pass shorter values")
            return node
        return replace(node, value=text, text=text)

    def _value(self, found: re.Match[str], part: Part) -> str:
        if self._left < 0 or found["dollar"]:
            return "$"
        name, how, rest = found["bare"] or found["name"], found["how"] or "", found["rest"] or ""
        if not name:
            part.refuse(_BAD)
            return ""
        value = self._values.get(name)
        given = value is not None and not (how.startswith(":") and value == "")
        if how.endswith("+"):
            return rest if given else ""
        if given:
            return value or ""
        if how.endswith("-"):
            return rest
        hint = f"pass it (`--var {name}=VALUE`), or write a default: `${{{name}:-VALUE}}`"
        part.refuse(f"`{name}` is not set{f' ({rest})' if rest else ''}; {hint}")
        return ""


def _is_foreign(name: str) -> bool:
    """Return True for an extension that means nothing here."""
    return name.startswith(EXTENSION) and name != OURS
