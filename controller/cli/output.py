"""What goes to stdout: tables as kubectl aligns them, YAML and JSON."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from controller.cli.safe_text import UNSAFE, in_a_line, plain
from controller.version import API_VERSION

_GAP = 3


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows aligned in columns, three spaces apart; the last column is not padded."""
    rows = [[in_a_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = ["".join(cell.ljust(width + _GAP) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def table(
    found: dict[str, Any], *, wide: bool = False, header: bool = True, namespaces: bool = False, labels: bool = False
) -> str:
    """A Table of the server as text; `namespaces` and `labels` ask for a column of them."""
    shown = [at for at, each in enumerate(found["columnDefinitions"]) if wide or not each.get("priority")]
    rows = [[str(row["cells"][at]) for at in shown] for row in found["rows"]]
    titles = [str(found["columnDefinitions"][at]["name"]).upper() for at in shown]
    if namespaces:
        titles.insert(0, "NAMESPACE")
        for cells, row in zip(rows, found["rows"], strict=True):
            cells.insert(0, str(row["object"]["metadata"].get("namespace", "")))
    if labels:
        titles.append("LABELS")
        for cells, row in zip(rows, found["rows"], strict=True):
            has = row["object"]["metadata"].get("labels") or {}
            cells.append(",".join(f"{key}={value}" for key, value in sorted(has.items())) or "<none>")
    return columns([titles, *rows] if header else rows)


def json_text(value: Any) -> str:
    """Indented JSON, as kubectl prints it; what is not safe on a terminal is written as an escape."""
    import json

    text = json.dumps(value, indent=4, ensure_ascii=False)
    return json.dumps(value, indent=4) if UNSAFE.search(text) else text


def yaml_text(value: Any) -> str:
    """YAML that says the same to readers of YAML 1.1 and 1.2."""
    from controller.cli.yaml_text import dump

    return dump(value).rstrip("\n")


def many(items: Sequence[Any]) -> dict[str, Any]:
    """Several objects as one document, which `apply` takes again."""
    return {"apiVersion": API_VERSION, "kind": "List", "items": list(items)}


def say(text: str, *, exact: bool = False) -> None:
    """A result, on stdout. `exact`: as it is, unless a person reads it."""
    exact = exact and not sys.stdout.isatty()
    click.echo(text if exact else plain(text), color=exact or None)  # color: click takes nothing out either


def note(text: str) -> None:
    """Anything else, on stderr."""
    click.echo(plain(text), err=True)


def on_terminal() -> bool:
    """Whether progress may be shown."""
    return sys.stderr.isatty()
