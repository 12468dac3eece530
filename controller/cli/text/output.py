"""Output on stdout: tables as kubectl aligns them, and -o json, yaml, name, jsonpath=... and custom-columns=..."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from controller.cli.errors import UsageProblem
from controller.cli.safe_text import UNSAFE, one_line, plain
from controller.version import API_VERSION

_GAP = 3


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align rows in columns, three spaces apart; the last column is not padded."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = ["".join(cell.ljust(width + _GAP) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def table(
    listing: dict[str, Any],
    *,
    wide: bool = False,
    header: bool = True,
    namespaces: bool = False,
    labels: bool = False,
    label_columns: Sequence[str] = (),
) -> str:
    """Format a Table of the server as text; `namespaces`, `labels` and each of `label_columns` add a column."""
    shown_columns = [at for at, column in enumerate(listing["columnDefinitions"]) if wide or not column.get("priority")]
    rows = [[str(row["cells"][at]) for at in shown_columns] for row in listing["rows"]]
    titles = [str(listing["columnDefinitions"][at]["name"]).upper() for at in shown_columns]
    if namespaces:
        titles.insert(0, "NAMESPACE")
        for cells, row in zip(rows, listing["rows"], strict=True):
            cells.insert(0, str(row["object"]["metadata"].get("namespace", "")))
    for label in label_columns:
        titles.append(label.rpartition("/")[2].upper())
        for cells, row in zip(rows, listing["rows"], strict=True):
            cells.append(str((row["object"]["metadata"].get("labels") or {}).get(label, "")))
    if labels:
        titles.append("LABELS")
        for cells, row in zip(rows, listing["rows"], strict=True):
            has = row["object"]["metadata"].get("labels") or {}
            cells.append(",".join(f"{key}={value}" for key, value in sorted(has.items())) or "<none>")
    return columns([titles, *rows] if header else rows)


def json_text(value: Any) -> str:
    """Format as indented JSON, as kubectl does; characters unsafe on a terminal are escaped."""
    import json

    text = json.dumps(value, indent=4, ensure_ascii=False)
    return json.dumps(value, indent=4) if UNSAFE.search(text) else text


def yaml_text(value: Any) -> str:
    """Format as YAML that reads the same in YAML 1.1 and 1.2."""
    from controller.cli.text.yaml_text import dump

    return dump(value).rstrip("\n")


def object_list(items: Sequence[Any]) -> dict[str, Any]:
    """Wrap several objects in one List, which `apply` accepts."""
    return {"apiVersion": API_VERSION, "kind": "List", "items": list(items)}


def say(text: str, *, exact: bool = False) -> None:
    """Print a result on stdout. `exact`: unescaped unless stdout is a terminal."""
    exact = exact and not sys.stdout.isatty()
    click.echo(text if exact else plain(text), color=exact or None)  # color: click takes nothing out either


def say_table(text: str) -> None:
    """Print a table on stdout: on a terminal its titles are bold, and words of a good or a bad state have colours."""
    click.echo("\n".join(map(paint, plain(text).split("\n"))) if colours() else plain(text))


def colours() -> bool:
    """Tell if results may have colours: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_CELLS = re.compile(r"( {2,})")
_TITLE = re.compile(r"[A-Z][A-Z%/ -]*")
_STATES = {
    "red": re.compile(
        "[A-Z][A-Za-z]*(BackOff|Failed|Missing|Refused|Lost|Exceeded|Unreachable|Killed|Pressure|Conflict|Error)"
        "|Error|Killed|Refused|Unhealthy|Evicted|Degraded|NotSecured|Infeasible|problem|refused|!!"
    ),
    "green": re.compile("Running|True|Active|Ready|Completed|ok|allowed"),
    "yellow": re.compile(
        "False|Unknown|Pending|Warning|Outdated|Deferred|Suspended|Paused|Hibernated|IdleReaped|StartupProbe|PoolExhausted"
        "|(Not|Terminat|Creat|Start|Claim|Stopp|Suspend|Paus|Hibernat|Wak|ImagePull)(ing|[A-Z][a-z]+)|warning"
    ),
}


def paint(line: str) -> str:
    """Return a line of a table in colours. Its cells are at least two spaces apart."""
    cells = _CELLS.split(line)
    if all(_TITLE.fullmatch(cell) for cell in cells[::2] if cell):
        return click.style(line, bold=True) if line else line
    return "".join(map(_colour, cells))


def _colour(cell: str) -> str:
    colour = next((colour for colour, pattern in _STATES.items() if pattern.fullmatch(cell)), None)
    return click.style(cell, fg=colour) if colour else cell


def note(text: str) -> None:
    """Print a message on stderr."""
    click.echo(plain(text), err=True)


def without(missing: Sequence[Mapping[str, str]] | None, what: str) -> str:
    """Return a line that names the hosts whose objects (`what`) a list lacks; empty if there are none."""
    hosts = "; ".join(one_line(f"{host['host']} ({host['message']})") for host in missing or ())
    return f"Without the {what} of missing hosts: {hosts}." if hosts else ""


def on_terminal() -> bool:
    """Tell if stderr is a terminal, where progress may be shown."""
    return sys.stderr.isatty()


# (objects, True if it is the one object asked for) -> text without a final line break.
Format = Callable[[Sequence[Any], bool], str]
_NONE = "<none>"
FORMS = "wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=TITLE:PATH,..."


def is_object_format(output: str | None) -> bool:
    """Tell if this output format prints whole objects, not a table."""
    return output not in (None, "wide")


def object_format(output: str, *, header: bool = True) -> Format:
    """Return the output format of that name. UsageProblem if it is unknown or malformed."""
    word, equals, expression = output.partition("=")
    if output in ("json", "yaml"):
        write = json_text if output == "json" else yaml_text
        return lambda objects, single: write(objects[0] if single else object_list(objects))
    if output == "name":
        return lambda objects, _single: "\n".join(
            f"{entry['kind'].lower()}.paddock/{_name(entry)}" for entry in objects
        )
    if word == "jsonpath" and expression:
        return _template(expression)
    if word == "custom-columns" and expression:
        return _columns(expression, header=header)
    if word in ("go-template", "template", "go-template-file", "jsonpath-file", "jsonpath-as-json"):
        raise UsageProblem(f"`-o {word}` is not supported; write -o jsonpath='{{.metadata.name}}', or -o json for `jq`")
    hint = f"; write {word}=..." if word in ("jsonpath", "custom-columns") and not equals else ""
    raise UsageProblem(f"`-o {output}` is not an output format{hint}; use one of {FORMS}")


def sort_key(path: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a sort key by the value at a JSONPath: missing first, then numbers, then text."""
    from controller.cli.text.jsonpath import compile_path, text_of, values

    compiled = compile_path(path)

    def key(obj: Any) -> tuple[Any, ...]:
        matches = values(compiled, obj)[:1]
        if not matches or matches[0] is None:
            return (0,)
        if isinstance(matches[0], int | float) and not isinstance(matches[0], bool):
            return 1, matches[0]
        return 2, text_of(matches[0])

    return key


def _name(obj: Any) -> str:
    return str(obj["metadata"]["name"])


def _template(text: str) -> Format:
    from controller.cli.text.jsonpath import Template

    template = Template(text)
    return lambda objects, single: template.render(objects[0] if single else object_list(objects))


def _columns(text: str, *, header: bool) -> Format:
    from controller.cli.text.jsonpath import compile_path, text_of, values

    pairs = [column_text.partition(":") for column_text in text.split(",")]
    if any(not title or not path for title, _, path in pairs):
        raise UsageProblem("custom-columns: write TITLE:PATH,TITLE:PATH, such as NAME:.metadata.name")
    titles, paths = [title for title, _, _ in pairs], [compile_path(path) for _, _, path in pairs]

    def write(objects: Sequence[Any], _single: bool) -> str:
        rows = [[",".join(map(text_of, values(path, entry))) or _NONE for path in paths] for entry in objects]
        return columns([titles, *rows] if header else rows)

    return write
