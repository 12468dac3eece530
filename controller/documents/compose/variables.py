"""Variables of a Compose file: `$X`, `${X}`, `${X:-default}`, `${X:?message}`, `${X:+other}`; `$$` is a dollar.

Values come from the caller alone: no environment and no `.env` file is read.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from controller.documents.compose.part import EXTENSION, OURS, Part
from controller.documents.yaml_tree import Node
from controller.kinds.common.problem import MOST_PROBLEMS

MAX_LETTERS = 4 << 20  # of all texts that are made
MAX_SCALAR = 256 << 10
_USE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<how>:?[-?+])(?P<rest>[^{}$]*))?\}|)"
)
_BAD = "`$` starts a variable: write `${NAME}` or `${NAME:-default}` (not nested), or `$$` for a dollar sign"


class Replacer:
    """Replaces the variables of one file. `left` bounds what they may grow to. Aliases share a node afterwards, too."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values, self._left = values, MAX_LETTERS
        self._done: dict[int, tuple[Node, Node]] = {}  # by id: a node, which so keeps its id, and what became of it
        self._said: set[str] = set()  # of the present text

    def replaced(self, part: Part) -> Node:
        """Return the value with its variables replaced; problems are in the part's report. Keys have none."""
        node = part.node
        if id(node) not in self._done:
            self._done[id(node)] = node, self._made(part)
        return self._done[id(node)][1]

    def _made(self, part: Part) -> Node:
        node = part.node
        if len(part.report.problems) > MOST_PROBLEMS:
            return node
        if len(node.text) > MAX_SCALAR:
            part.refuse(f"is longer than {MAX_SCALAR >> 10} KiB; put it into a file of the workspace")
            return node
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
        self._said.clear()
        self._left -= len(node.value)
        text = _USE.sub(lambda found: self._bounded(found, part), node.value)
        if self._left < 0:
            part.refuse(f"the file's variables make more than {MAX_LETTERS >> 20} MiB of text; pass shorter values")
            return node
        return replace(node, value=text, text=text)

    def _bounded(self, found: re.Match[str], part: Part) -> str:
        """Return the value; nothing more once there is too much."""
        text = self._value(found, part) if self._left >= 0 else ""
        self._left -= len(text)
        return text if self._left >= 0 else ""

    def _value(self, found: re.Match[str], part: Part) -> str:
        if found["dollar"]:
            return "$"
        name, how, rest = found["bare"] or found["name"], found["how"] or "", found["rest"] or ""
        if not name:
            self._refuse(part, _BAD)
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
        self._refuse(part, f"`{name}` is not set{f' ({rest})' if rest else ''}; {hint}")
        return ""

    def _refuse(self, part: Part, message: str) -> None:
        """Add a problem, once for each text."""
        if message not in self._said and len(part.report.problems) <= MOST_PROBLEMS:
            self._said.add(message)
            part.refuse(message)


def _is_foreign(name: str) -> bool:
    """Return True for an extension that means nothing here."""
    return name.startswith(EXTENSION) and name != OURS
