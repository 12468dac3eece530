"""Files of variables (`.env`, `env_file:`): lines of NAME=VALUE, quotes as in shells, `${NAME}` in them replaced."""

import re
from collections.abc import Mapping

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*(?:[=:]\s*(?P<value>.*))?\Z")
_VARIABLE = re.compile(
    r"\\\$|\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?::?-(?P<default>[^{}]*))?\}|(?P<bare>[A-Za-z_]\w*))"
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read_variables(text: str, outer_values: Mapping[str, str]) -> tuple[dict[str, str], list[int]]:
    """Return the variables, and the numbers of lines that are none. `outer_values` are those for `${NAME}`.

    A name without a value gets the outer one; without that it is left out.
    """
    variables: dict[str, str] = {}
    wrong: list[int] = []
    lines = iter(enumerate(text.removeprefix("\ufeff").splitlines(), 1))
    for number, line in lines:
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.match(stripped)
        if match is None:
            wrong.append(number)
            continue
        value = match["value"]
        if value is None:
            variables |= {match["name"]: outer_values[match["name"]]} if match["name"] in outer_values else {}
            continue
        while value[:1] in ("'", '"') and not _is_closed(value):
            following = next(lines, None)
            if following is None:
                break
            value = f"{value}\n{following[1]}"
        variables[match["name"]] = _value(value, {**variables, **outer_values})
    return variables, wrong


def _is_closed(value: str) -> bool:
    return re.match(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", value, re.DOTALL) is not None


def _value(text: str, outer_values: Mapping[str, str]) -> str:
    if text.startswith("'"):
        return text[1:].partition("'")[0]
    if text.startswith('"'):
        match = re.match(r'"((?:[^"\\]|\\.)*)"?', text, re.DOTALL)
        inner = match[1] if match is not None else text[1:]
        expanded = _expanded(inner, outer_values)
        return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), expanded, flags=re.DOTALL)
    return _expanded(re.split(r"\s#", text, maxsplit=1)[0].strip(), outer_values)


def _expanded(text: str, outer_values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        name = match["braced"] or match["bare"]
        return outer_values.get(name) or match["default"] or ""

    return _VARIABLE.sub(value, text)
