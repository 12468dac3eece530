"""Variables of a Compose file: `$X`, `${X}`, `${X:-default}`, `${X:?message}`, `${X:+other}`; `$$` is a dollar.

Values come from the caller alone: the command line passes those of its environment and of `.env` that the file uses.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from controller.documents.compose.element import EXTENSION, OURS, Element
from controller.documents.yaml_tree import Node
from controller.kinds.common.problem import MOST_PROBLEMS

MAX_LETTERS = 4 << 20  # of all texts that are made
MAX_SCALAR = 256 << 10
_USE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<how>:?[-?+])(?P<rest>(?:[^{}$]|\$\{[^{}$]*\}|\$[A-Za-z_])*))?\}|)"
)
_BAD = (
    "`$` starts a variable: write `${NAME}` or `${NAME:-default}` (one in the other at most), or `$$` for a dollar sign"
)


class Replacer:
    """Replaces the variables of one file. Their text is bounded. Aliases share a node afterwards, too."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values, self._remaining = values, MAX_LETTERS
        self._done: dict[int, tuple[Node, Node]] = {}  # by id: a node, which so keeps its id, and what became of it
        self._said: set[str] = set()  # of the present text

    def replace_in(self, element: Element) -> Node:
        """Return the value with its variables replaced; problems are in the element's report. Keys have none."""
        node = element.node
        if id(node) not in self._done:
            self._done[id(node)] = node, self._replace_variables(element)
        return self._done[id(node)][1]

    def _replace_variables(self, element: Element) -> Node:
        node = element.node
        if len(element.report.problems) > MOST_PROBLEMS:
            return node
        if len(node.text) > MAX_SCALAR:
            element.refuse(f"is longer than {MAX_SCALAR >> 10} KiB; put it into a file of the workspace")
            return node
        if node.fields is not None:
            fields = {
                name: (key, node.fields[name][1] if _is_foreign(name) else self.replace_in(child))
                for (name, child), (key, _) in zip(element.fields().items(), node.fields.values(), strict=True)
            }
            return replace(node, fields=fields)
        if node.items is not None:
            return replace(node, items=[self.replace_in(child) for child in element.items()])
        if not isinstance(node.value, str) or "$" not in node.value:
            return node
        self._said.clear()
        self._remaining -= len(node.value)
        text = _USE.sub(lambda match: self._bound_value(match, element), node.value)
        if self._remaining < 0:
            element.refuse(f"the file's variables make more than {MAX_LETTERS >> 20} MiB of text; pass shorter values")
            return node
        return replace(node, value=text, text=text)

    def _bound_value(self, match: re.Match[str], element: Element) -> str:
        """Return the value; nothing more once there is too much."""
        text = self._value(match, element) if self._remaining >= 0 else ""
        self._remaining -= len(text)
        return text if self._remaining >= 0 else ""

    def _value(self, match: re.Match[str], element: Element) -> str:
        if match["dollar"]:
            return "$"
        name = match["bare"] or match["name"]
        how = match["how"] or ""
        default = match["rest"] or ""
        if not name:
            self._refuse(element, _BAD)
            return ""
        value = self._values.get(name)
        is_set = value is not None and not (how.startswith(":") and value == "")
        if how.endswith("+"):
            return self._nested(default, element) if is_set else ""
        if is_set:
            return value or ""
        if how.endswith("-"):
            return self._nested(default, element)
        hint = f"pass it (`--var {name}=VALUE`), or write a default: `${{{name}:-VALUE}}`"
        self._refuse(element, f"`{name}` is not set{f' ({default})' if default else ''}; {hint}")
        return ""

    def _nested(self, text: str, element: Element) -> str:
        """Return a default with its own variables replaced: `${A:-${B}}`, one in the other and no deeper."""
        return _USE.sub(lambda match: self._bound_value(match, element), text) if "$" in text else text

    def _refuse(self, element: Element, message: str) -> None:
        """Add a problem, once for each text."""
        if message not in self._said and len(element.report.problems) <= MOST_PROBLEMS:
            self._said.add(message)
            element.refuse(message)


def _is_foreign(name: str) -> bool:
    """Return True for an extension that means nothing here."""
    return name.startswith(EXTENSION) and name != OURS
