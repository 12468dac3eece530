"""`paddock top`."""

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import click

from controller.cli.client import Client, connect, segment
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option
from controller.cli.output import columns, json_text, note, say, yaml_text

# Column -> field of the usage.
_FIGURES = {
    "cpu": "cpuPercent",
    "memory": "memoryUsageBytes",
    "limit": "memoryLimitBytes",
    "rx": "networkReceiveBytes",
    "tx": "networkTransmitBytes",
    "read": "diskReadBytes",
    "write": "diskWriteBytes",
    "pids": "processes",
    "uptime": "uptimeSeconds",
}
_TITLES = ["NAME", "CPU%", "MEMORY", "LIMIT", "NET RX", "NET TX", "READ", "WRITTEN", "PIDS", "UPTIME"]
_CLEAR = "\x1b[H\x1b[2J"


@click.command("top")
@click.argument("name", required=False, metavar="[NAME]")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option(
    "--sort-by", type=click.Choice(["name", *_FIGURES]), default="name", help="Sort by this column, largest first."
)
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option("--interval", type=DURATION, default=2.0, metavar="TIME", help="Refresh interval of -w.  [default: 2s]")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: table.")
@click.option("--no-headers", is_flag=True, help="Print no column titles.")
@click.pass_context
def top_(
    ctx: click.Context,
    name: str | None,
    namespace: str | None,
    everywhere: bool,
    sort_by: str,
    watch: bool,
    interval: float,
    output: str | None,
    no_headers: bool,
) -> None:
    """Show current use: CPU (100 is one processor), memory (working set), network, disk, processes.

    \b
    paddock top
    paddock top -A --sort-by memory
    paddock top quickstart -w
    """
    if watch and output is not None:
        raise click.UsageError("-w can't be combined with -o; leave one out")
    if name and everywhere:
        raise click.UsageError("a name can't be combined with -A; leave one out")
    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE
    terminal = sys.stdout.isatty()
    pause, shown = threading.Event(), yaml_text if output == "yaml" else json_text
    while True:
        found = _ask(client, place, name, everywhere=everywhere)
        if output is not None:
            say(shown(found))
            return
        items = _sorted(found.get("items", [found]), sort_by)
        if watch and terminal:
            click.echo(_CLEAR, nl=False)
        if items:
            say(_table(items, header=not no_headers, namespaces=everywhere))
        else:
            note("No running sandboxes." if everywhere else f"No running sandboxes in {place} namespace.")
        if not watch:
            return
        pause.wait(max(0.1, interval))


def _ask(client: Client, namespace: str, name: str | None, *, everywhere: bool) -> dict[str, Any]:
    plain = (name or "-").removeprefix("sandbox/").removeprefix("sb/")
    place = "" if everywhere else f"namespaces/{segment(namespace)}/"
    found: dict[str, Any] = client.get(f"{place}sandboxes/{segment(plain)}/metrics")
    return found


def _sorted(items: Sequence[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    named = sorted(items, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))
    if by == "name":
        return named
    return sorted(named, key=lambda each: each["usage"].get(_FIGURES[by]) or 0, reverse=True)


def _table(items: Sequence[Mapping[str, Any]], *, header: bool, namespaces: bool) -> str:
    rows = [_row(each) for each in items]
    titles = list(_TITLES)
    if namespaces:
        titles.insert(0, "NAMESPACE")
        rows = [[each["metadata"]["namespace"], *row] for each, row in zip(items, rows, strict=True)]
    return columns([titles, *rows] if header else rows)


def _row(item: Mapping[str, Any]) -> list[str]:
    usage = item["usage"]
    return [
        item["metadata"]["name"],
        f"{usage['cpuPercent']:.1f}",
        *(size(usage.get(_FIGURES[each])) for each in ("memory", "limit", "rx", "tx", "read", "write")),
        str(usage["processes"]),
        duration(usage["uptimeSeconds"]),
    ]


def size(count: float | None) -> str:
    """Format bytes with a unit and three digits; `-` if unknown."""
    if count is None:
        return "-"
    for unit in ("B", "Ki", "Mi", "Gi"):
        if count < 1000:
            return f"{count:.0f}{unit}" if unit == "B" or count >= 100 else f"{count:.3g}{unit}"
        count /= 1024
    return f"{count:.3g}Ti"


def duration(seconds: float) -> str:
    """Format as 45s, 12m, 5h or 3d."""
    whole = int(seconds)
    for long, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * long:
            return f"{whole // long}{unit}"
    return f"{whole}s"
