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
    path = _ESCAPED.sub(lambda found: "[" + json.dumps(found[1].replace("\\.", ".")) + "]", path)
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
        self._nodes, rest = _read(tokens, 0, text)
        if rest != len(tokens):
            raise UsageProblem(f"`{text}`: {{end}} without {{range}}; remove it")

    def render(self, obj: Any) -> str:
        """Render one object. Missing values are empty."""
        return "".join(_render(self._nodes, obj))


def _tokens(text: str) -> Iterator[_Text | str]:
    """Split a template into text and the insides of braces."""
    at = 0
    for found in _PIECE.finditer(text):
        yield from _plain(text[at : found.start()], text)
        yield found[1].strip()
        at = found.end()
    yield from _plain(text[at:], text)


def _plain(piece: str, whole: str) -> Iterator[_Text]:
    if "{" in piece or "}" in piece:
        raise UsageProblem(f"`{whole}`: a brace is not closed; write {{.metadata.name}}")
    if piece:
        yield _Text(piece)


def _read(tokens: Sequence[_Text | str], at: int, whole: str, *, inside: bool = False) -> tuple[tuple[_Node, ...], int]:
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
            body, at = _read(tokens, at, whole, inside=True)
            nodes.append(_Range(compile_path(piece.removeprefix("range")), body))
        elif piece[:1] in ('"', "'"):
            nodes.append(_Text(_quoted(piece, whole)))
        else:
            nodes.append(compile_path(piece))
    if inside:
        raise UsageProblem(f"`{whole}`: {{range}} without {{end}}; add it")
    return tuple(nodes), at


def _quoted(piece: str, whole: str) -> str:
    text = piece if piece[0] == '"' else '"' + piece[1:-1].replace('"', '\\"') + '"'
    try:
        return str(json.loads(text))
    except ValueError as error:
        raise UsageProblem(f'`{whole}`: can\'t read {piece}; write {{"\\n"}}') from error


def _render(nodes: Sequence[_Node], obj: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, _Text):
            yield node.text
        elif isinstance(node, _Range):
            for each in values(node.path, obj):
                yield from _render(node.body, each)
        else:
            yield " ".join(map(text_of, values(node, obj)))
