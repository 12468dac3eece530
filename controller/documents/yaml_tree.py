"""Parser of YAML (and so JSON) text into trees with the position of each part.

Built from the parser's events, without recursion: PyYAML's own composer overflows the C stack on deep nesting. Aliases
share a node, and their expanded size is counted before anything is expanded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from controller.documents.text_file import MAX_BYTES, too_large
from controller.documents.yaml_core import scalar
from controller.kinds.common.problem import MOST_PROBLEMS, Path, Problem, field_text

MAX_DEPTH = 64
MAX_NODES = 400_000  # what takes some seconds to read
_TOO_MANY = f"more than {MAX_NODES:,} values (aliases counted as often as used); split the file"
REST_UNREPORTED = "further problems are not listed; fix the problems above first"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_PAIR = re.compile(r"(\\\\)|\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


@dataclass(slots=True)
class Node:
    """A part of a document."""

    line: int
    """Line that it begins in."""
    column: int
    """Column that it begins in."""
    value: Any = None
    """Value of a scalar."""
    text: str = ""
    """A scalar as written."""
    fields: "dict[str, tuple[Node, Node]] | None" = None
    """Fields of a mapping, by key: the place of the key, and the value."""
    items: "list[Node] | None" = None
    """Items of a list."""
    size: int = 1
    """Number of nodes after alias expansion."""
    open: bool = False
    """True: the parser is still in it."""
    key: "Node | None" = None
    """Key whose value comes next."""
    nested_in: str = ""
    """Field below it in which its fields were written (see `aliases`); empty: none."""
    file: str = ""
    """File that it was written in, if it is another one than its tree's."""
    merged: "list[Node] | None" = None
    """Mappings whose fields it has, too, where they are read (`<<`)."""

    def plain(self) -> Any:
        """Return the value as plain JSON data."""
        if self.fields is not None:
            return {key: node.plain() for key, (_, node) in self.fields.items()}
        if self.items is not None:
            return [node.plain() for node in self.items]
        return self.value


@dataclass(frozen=True, slots=True)
class Tree:
    """One document of a file."""

    file: str
    root: Node

    def find(self, path: Path) -> Node | None:
        """Return the node at that path."""
        node: Node | None = self.root
        for step in path:
            node = None if node is None else _child(node, step)
        return node

    def problem(self, path: Path, message: str, *, at_key: bool = False, reason: str = "FieldValueInvalid") -> Problem:
        """Return a problem at that path, or at its nearest written parent."""
        written_path = self._as_written(path)
        while (node := self.find(path)) is None:
            path = path[:-1]
        if at_key and path and (parent := self.find(path[:-1])) is not None and parent.fields:
            node = parent.fields[str(path[-1])][0]
        return Problem(
            node.file or self.file,
            node.line,
            column=node.column,
            field=field_text(written_path),
            message=message,
            reason=reason,
        )

    def _as_written(self, path: Path) -> Path:
        """Return a path with the names that the user wrote."""
        written_path: list[str | int] = []
        node: Node | None = self.root
        for step in path:
            if node is not None and node.fields is not None and step in node.fields:
                key, node = node.fields[str(step)]
                written_path += [key.text, *([node.nested_in] if node.nested_in else [])]
            else:
                node = None if node is None else _child(node, step)
                written_path.append(step)
        return tuple(written_path)


def _child(node: Node, step: str | int) -> Node | None:
    if isinstance(step, int):
        return node.items[step] if node.items is not None and step < len(node.items) else None
    entry = (node.fields or {}).get(step)
    return entry[1] if entry else None


@dataclass(slots=True)
class ValueBudget:
    """Remaining number of values, with aliases expanded, of all documents in all files of a request."""

    remaining: int = MAX_NODES

    def take(self, count: int, event: yaml.Event) -> None:
        """Count so many values, before they are built."""
        self.remaining -= count
        if self.remaining < 0:
            raise _TooMuch(event, _TOO_MANY)


def read(
    file: str, text: str, budget: ValueBudget | None = None, *, merges: bool = False
) -> tuple[list[Tree], list[Problem]]:
    """Return the documents of a file, and all YAML problems. Empty documents are left out.

    Files that are read together share their `budget`. `merges`: `<<` is read as in YAML 1.1.
    """
    reading = Reading(file, text, budget, merges=merges)
    trees = list(reading)
    return trees, reading.problems


class Reading:
    """The documents of a file as `read` returns them, one at a time. `problems` are those of the YAML read so far."""

    def __init__(self, file: str, text: str, budget: ValueBudget | None = None, *, merges: bool = False) -> None:
        self._file, self._text = file, text
        self._builder = _Builder(file, budget or ValueBudget(), merges=merges)
        self.problems = self._builder.problems

    def __iter__(self) -> Iterator[Tree]:
        """Read the file. Only once."""
        try:
            size = len(self._text.encode())
        except UnicodeEncodeError as error:
            message = f"character {error.start + 1} is a lone surrogate (\\ud800 to \\udfff alone), not text; remove it"
            self.problems.append(Problem(self._file, 0, 0, "", message))
            return
        if size > MAX_BYTES:
            self.problems.append(Problem(self._file, 0, 0, "", too_large(size)))
            return
        try:
            for event in yaml.parse(_join_pairs(self._text), Loader=_LOADER):
                self._builder.take(event)
                if len(self.problems) >= MOST_PROBLEMS:
                    raise _TooMuch(event, REST_UNREPORTED)
                if self._builder.trees:
                    yield self._builder.trees.pop()
        except yaml.YAMLError as error:
            self.problems.append(_syntax(self._file, self._text, error))
        except _TooMuch as error:
            self.problems.append(Problem(self._file, error.line, error.column, "", str(error)))


def _join_pairs(text: str) -> str:
    """Join surrogate pairs: JSON writes characters beyond U+FFFF as two escapes, YAML as one."""

    def join_pair(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        code = 0x10000 + ((int(match[2], 16) - 0xD800) << 10) + int(match[3], 16) - 0xDC00
        return f"\\U{code:08x}"

    return _PAIR.sub(join_pair, text) if "\\u" in text else text


class _TooMuch(Exception):
    def __init__(self, event: yaml.Event, message: str) -> None:
        super().__init__(message)
        self.line, self.column = _place(event)


def _place(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


@dataclass(slots=True)
class _Builder:
    """Builds trees from the parser's events. `stack` holds the open collections."""

    file: str
    budget: ValueBudget
    merges: bool = False
    trees: list[Tree] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    stack: list[Node] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.anchors.clear()
        elif isinstance(event, yaml.ScalarEvent):
            self.budget.take(1, event)
            self._place(self._scalar(event))
        elif isinstance(event, yaml.AliasEvent):
            target = self._alias(event)
            self.budget.take(target.size, event)
            self._place(target)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self.budget.take(1, event)
            self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close()

    def _say(self, node: Node, message: str) -> None:
        self.problems.append(Problem(self.file, node.line, node.column, "", message))

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise _TooMuch(event, f"nested deeper than {MAX_DEPTH} levels; no spec needs that")
        node = Node(*_place(event), open=True)
        if isinstance(event, yaml.MappingStartEvent):
            node.fields = {}
        else:
            node.items = []
        if event.tag not in (None, "!", _CORE + "map", _CORE + "seq"):
            self._say(node, f"tag `{event.tag}` is not supported; remove it")
        self._anchor(event, node)
        self.stack.append(node)

    def _close(self) -> None:
        node = self.stack.pop()
        node.open = False
        if node.merged is not None:
            own_fields, node.fields = node.fields or {}, {}
            for source in reversed(node.merged):
                node.fields.update(source.fields or {})
            node.fields.update(own_fields)
        self._place(node)

    def _anchor(self, event: Any, node: Node) -> None:
        if event.anchor is not None:
            self.anchors[event.anchor] = node

    def _alias(self, event: yaml.AliasEvent) -> Node:
        target = self.anchors.get(event.anchor or "")
        if target is None:
            raise _TooMuch(event, f"`*{event.anchor}` refers to no anchor; write `&{event.anchor}` where it is defined")
        if target.open:
            raise _TooMuch(event, f"`*{event.anchor}` refers to a value that contains it; write the value out")
        return target

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        node = Node(*_place(event), value=event.value, text=event.value)
        if event.tag is None and event.implicit[0]:
            try:
                node.value = scalar(event.value)
            except ValueError as error:
                self._say(node, str(error))
        elif event.tag not in (None, "!", _CORE + "str"):
            self._say(node, f"tag `{event.tag}` is not supported; write the value without it")
        self._anchor(event, node)
        return node

    def _place(self, node: Node) -> None:
        """Put a finished node where it belongs: into the open collection, or as the root of a document."""
        if not self.stack:
            if node.fields is not None or node.items is not None or node.value is not None:
                self.trees.append(Tree(self.file, node))
            return
        parent = self.stack[-1]
        parent.size += node.size
        if parent.items is not None:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            self._field(parent, parent.key, node)
            parent.key = None

    def _field(self, parent: Node, key: Node, node: Node) -> None:
        fields = parent.fields if parent.fields is not None else {}
        if not isinstance(key.value, str):
            self._say(key, f'a key must be text; write "{key.text}" in quotes' if key.text else "a key must be text")
        elif key.value == "<<":
            self._merge(parent, key, node)
        elif key.value in fields:
            first = fields[key.value][0]
            self._say(key, f"`{key.value}` is set twice (first on line {first.line}); remove one")
        else:
            fields[key.value] = (key, node)

    def _merge(self, parent: Node, key: Node, node: Node) -> None:
        """Note mappings whose fields the parent has, too: its own win, then those of the first."""
        sources = node.items if node.items is not None else [node]
        if not self.merges:
            self._say(key, "`<<` (merge) is not part of YAML 1.2; write the fields out")
        elif parent.merged is not None:
            self._say(key, "`<<` is set twice; write a list: `<<: [*a, *b]`")
        elif any(source.fields is None for source in sources):
            self._say(key, "`<<` must be a mapping or a list of mappings, such as `*name`")
        else:
            parent.merged = sources


_HINTS = {
    "mapping values are not allowed in this context": "one `:` too many, or wrong indentation before this",
    "found undefined tag handle": "a tag (`!`) that is not defined; put text that starts with `!` in quotes",
    "found unexpected end of stream": "a quote is not closed",
    "did not find expected key": "a line is indented differently from those around it, or a quote or bracket is open",
    "did not find expected '-' indicator": "a list item must start with `- ` at the same indentation as the others",
    "did not find expected ',' or ']'": "a `[` is not closed, or a `,` is missing",
    "did not find expected ',' or '}'": "a `{` is not closed, or a `,` is missing",
    "could not find expected ':'": "a `:` is missing after a key",
    "found unknown escape character": "an escape that YAML does not know; write `\\\\` for a backslash, or use '...'",
}


def _syntax(file: str, text: str, error: yaml.YAMLError) -> Problem:
    """Return the parser's error as a message with a remedy."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem(file, *_control_character(text), "", "a control character that YAML does not allow; remove it")
    message = str(getattr(error, "problem", None) or error)
    hint = _HINTS.get(message, message)
    if message == "found character that cannot start any token":
        at = text.splitlines()[mark.line][mark.column : mark.column + 1] if text else ""
        hint = "indented with a tab; use spaces" if at == "\t" else f"text cannot start with `{at}`; put it in quotes"
    opened = getattr(error, "context_mark", None)
    if opened is not None and opened.line != mark.line:
        hint += f" (it began on line {opened.line + 1}, column {opened.column + 1})"
    return Problem(file, mark.line + 1, mark.column + 1, "", f"not YAML: {hint}")


def _control_character(text: str) -> tuple[int, int]:
    match = re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    before = text[: match.start()] if match else ""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
