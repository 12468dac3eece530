"""Parts of a Compose file with their positions, and nodes of documents that keep them.

A document that is made of these nodes reports each later problem (schema, admission, quota) at its line of the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.documents.error_messages import kind_of
from controller.documents.model_fields import closest
from controller.documents.yaml_tree import Node
from controller.kinds.common.problem import MOST_PROBLEMS, Path, Problem, field_text

_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
EXTENSION = "x-"
OURS = "x-paddock"
_FEW = 12  # names that a message lists


@dataclass(slots=True)
class Report:
    """Problems and notes of one file. A note says what differs from Compose in a file that is accepted."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Element:
    """A value of the file, and the key before it."""

    node: Node
    report: Report
    path: Path = ()
    key: Node | None = None

    def refuse(self, message: str, *, at_key: bool = False) -> None:
        """Add a problem here; none once there are more than are listed."""
        if len(self.report.problems) <= MOST_PROBLEMS:
            self.report.problems.append(self.problem(message, at_key=at_key))

    def note(self, message: str) -> None:
        """Add a note here."""
        self.report.notes.append(self.problem(message, at_key=True))

    def problem(self, message: str, *, at_key: bool = False) -> Problem:
        """Return a problem with this value, or with its key."""
        node = self.key if at_key and self.key is not None else self.node
        return Problem(node.file or self.report.file, node.line, node.column, field_text(self.path), message)

    @property
    def unset(self) -> bool:
        """True for an empty value, which means the same as no key at all."""
        return self.node.fields is None and self.node.items is None and self.node.value is None

    @property
    def is_text(self) -> bool:
        return isinstance(self.node.value, str)

    def child(self, name: str) -> "Element | None":
        """Return the value of that key; None if it is missing or empty."""
        entry = (self.node.fields or {}).get(name)
        element = None if entry is None else Element(entry[1], self.report, (*self.path, name), entry[0])
        return None if element is None or element.unset else element

    def fields(self) -> Mapping[str, "Element"]:
        """Return all values by key, empty ones too; a problem for anything but a mapping."""
        if self.node.fields is None:
            if not self.unset:
                self.refuse(f"must be a mapping, not {kind_of(self.node.plain())}")
            return {}
        return {
            name: Element(node, self.report, (*self.path, name), key) for name, (key, node) in self.node.fields.items()
        }

    def items(self) -> Sequence["Element"]:
        """Return the items of a list; a problem for anything else."""
        if self.node.items is None:
            self.refuse(f"must be a list, not {kind_of(self.node.plain())}")
            return ()
        return [Element(node, self.report, (*self.path, at)) for at, node in enumerate(self.node.items)]

    def text(self) -> str | None:
        """Return text, or a number as written; a problem for anything else."""
        value = self.node.value
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return self.node.text
        quoted = f'; put it in quotes: "{self.node.text}"' if self.node.text else ""
        self.refuse(f"must be text, not {kind_of(self.node.plain())}{quoted}")
        return None

    def text_or_flag(self) -> str | None:
        """Return text, a number as written, or true or false; a problem for anything else."""
        return str(self.node.value).lower() if isinstance(self.node.value, bool) else self.text()

    def flag(self) -> bool | None:
        """Return a boolean; a problem for anything else."""
        if isinstance(self.node.value, bool) or self.node.text in (*_TRUE, *_FALSE):
            return self.node.text in _TRUE
        self.refuse("must be true or false")
        return None

    def texts(self) -> list["Element"]:
        """Return the items of a list of texts, or the one text in its place."""
        if self.is_text:
            return [self]
        return [element for element in self.items() if element.text() is not None]

    def check_keys(self, *names: str, **messages: str) -> None:
        """Add a problem for each key that is not one of these; `messages` has those of particular keys."""
        for name, element in self.fields().items():
            if name in names or (name.startswith(EXTENSION) and name != OURS):
                continue
            if len(self.report.problems) > MOST_PROBLEMS:
                return
            if name in messages:
                element.refuse(messages[name], at_key=True)
                continue
            meant = closest(name, (*names, *messages))
            hint = "remove it" if len(names) > _FEW or not names else f"supported here: {', '.join(names)}"
            element.refuse(f"not supported; {f'did you mean `{meant}`?' if meant else hint}", at_key=True)


def read_pairs(pairs: Element) -> Iterator[tuple[str, Element, bool]]:
    """Yield (name, value, has_value) of a mapping, or of a list of `NAME=VALUE`."""
    if pairs.node.items is None:
        for name, element in pairs.fields().items():
            yield name, element, not element.unset
        return
    for element in pairs.items():
        text = element.text()
        if text is not None:
            name, equals, value = text.partition("=")
            yield name, Element(scalar(value, element.node), element.report, element.path), bool(equals)


def scalar(value: Any, at: Node) -> Node:
    """Return a value that stands where that node does."""
    return Node(at.line, at.column, value=value, text=str(value), file=at.file)


def list_node(items: Sequence[Node], at: Node) -> Node:
    """Return a list that stands where that node does."""
    return Node(at.line, at.column, items=list(items), size=1 + sum(node.size for node in items), file=at.file)


def mapping_node(fields: Mapping[str, Node | None], at: Node) -> Node:
    """Return a mapping that stands where that node does, without the fields that are None."""
    entries = {name: (scalar(name, node), node) for name, node in fields.items() if node is not None}
    size = 1 + sum(1 + node.size for _, node in entries.values())
    return Node(at.line, at.column, fields=entries, size=size, file=at.file)
