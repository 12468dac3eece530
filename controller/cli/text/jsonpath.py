"""JSONPath as kubectl writes it: `{.metadata.name}`, text and `{"\\n"}` between, `{range .items[*]}...{end}`."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError

from controller.cli.errors import UsageProblem

_PIECE = re.compile(r"\{((?:[^{}\"']|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')*)\}")
# `.metadata.labels.app\.kubernetes\.io/name`: dots of a name are escaped.
_ESCAPED = re.compile(r"\.((?:[^.\[\]\\'\"\s]|\\.)*\\\.(?:[^.\[\]\\'\"\s]|\\.)*)")
_ENVIRONMENT = JSONPathEnvironment()


def compile_path(text: str) -> "JSONPath":
    """Compile the path `.a.b`, `{.a.b}`, `a.b`, `$.a` or `@.a`. UsageProblem, with an example, if it is invalid."""
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    path = _ESCAPED.sub(lambda match: "[" + json.dumps(match[1].replace("\\.", ".")) + "]", path)
    path = path[1:] if path[:1] in ("@", "$") else path
    if path and path[0] not in ".[":
        path = f".{path}"
    try:
        compiled = _ENVIRONMENT.compile("$" if path == "." else f"${path}")
    except JSONPathError as error:
        raise UsageProblem(
            f"`{text}` is not a valid JSONPath expression: {error.args[0]}; write one such as {{.metadata.name}}"
        ) from error
    if not isinstance(compiled, JSONPath):
        raise UsageProblem(f"`{text}`: only one path is allowed here; write one such as {{.metadata.name}}")
    return compiled


def values(path: "JSONPath", obj: Any) -> list[Any]:
    """Return the values at the path; empty if there are none."""
    return path.findall(obj)


def text_of(value: Any) -> str:
    """Format a value as kubectl prints it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Range:
    path: "JSONPath"
    body: "tuple[_Text | _Range | JSONPath, ...]"


_Node = _Text | _Range | JSONPath


class Template:
    """A parsed template. UsageProblem if it is malformed."""

    def __init__(self, text: str) -> None:
        tokens = list(_tokens(text))
        self._nodes, end = _read(tokens, 0, text)
        if end != len(tokens):
            raise UsageProblem(f"`{text}`: {{end}} without {{range}}; remove it")

    def render(self, obj: Any) -> str:
        """Render one object. Missing values are empty."""
        return "".join(_render(self._nodes, obj))


def _tokens(text: str) -> Iterator[_Text | str]:
    """Split a template into text and the insides of braces."""
    at = 0
    for match in _PIECE.finditer(text):
        yield from _plain(text[at : match.start()], text)
        yield match[1].strip()
        at = match.end()
    yield from _plain(text[at:], text)


def _plain(piece: str, template: str) -> Iterator[_Text]:
    if "{" in piece or "}" in piece:
        raise UsageProblem(f"`{template}`: a brace is not closed; write {{.metadata.name}}")
    if piece:
        yield _Text(piece)


def _read(
    tokens: Sequence[_Text | str], at: int, template: str, *, inside: bool = False
) -> tuple[tuple[_Node, ...], int]:
    """Parse the nodes from `at` on; return them and their end (after {end} `inside` a range)."""
    nodes: list[_Node] = []
    while at < len(tokens):
        piece = tokens[at]
        at += 1
        if isinstance(piece, _Text):
            nodes.append(piece)
        elif piece == "end":
            return tuple(nodes), at if inside else at - 1
        elif piece.startswith("range"):
            body, at = _read(tokens, at, template, inside=True)
            nodes.append(_Range(compile_path(piece.removeprefix("range")), body))
        elif piece[:1] in ('"', "'"):
            nodes.append(_Text(_unquote(piece, template)))
        else:
            nodes.append(compile_path(piece))
    if inside:
        raise UsageProblem(f"`{template}`: {{range}} without {{end}}; add it")
    return tuple(nodes), at


def _unquote(piece: str, template: str) -> str:
    text = piece if piece[0] == '"' else '"' + piece[1:-1].replace('"', '\\"') + '"'
    try:
        return str(json.loads(text))
    except ValueError as error:
        raise UsageProblem(f'`{template}`: can\'t read {piece}; write {{"\\n"}}') from error


def _render(nodes: Sequence[_Node], obj: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, _Text):
            yield node.text
        elif isinstance(node, _Range):
            for node_value in values(node.path, obj):
                yield from _render(node.body, node_value)
        else:
            yield " ".join(map(text_of, values(node, obj)))
