"""`paddock top`."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from controller.cli.client import Client, connect, segment
from controller.cli.errors import CliError, only_reads
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option
from controller.cli.safe_text import one_line
from controller.cli.text.output import columns, json_text, note, say, say_table, without, yaml_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

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
_TITLES = ["CPU%", "MEMORY", "LIMIT", "NET RX", "NET TX", "READ", "WRITTEN", "PIDS", "UPTIME"]
Item = Mapping[str, Any]
_COUNTED = {"NET RX": "rx", "NET TX": "tx", "READ": "read", "WRITTEN": "write"}
_BAR_CELLS = 12
_SANDBOX_WORDS = ("sandboxes", "sandbox", "sb", "pods", "pod", "po")  # the last as of kubectl
_HOST_WORDS = ("hosts", "host", "nodes", "node", "no")
_NEAR, _FULL = 0.7, 0.9  # of a limit: from here on a bar is yellow, and red


@dataclass(frozen=True)
class Use:
    """Items to show, and the hosts that gave none of theirs; None: there is one host, or one sandbox was asked for."""

    items: Sequence[Item]
    missing: Sequence[Mapping[str, str]] | None = None

    @property
    def has_hosts(self) -> bool:
        """Return True if there is more than one host."""
        return self.missing is not None

    def without(self) -> str:
        """Return a line that names the missing hosts; empty if there are none."""
        return without(self.missing, "sandboxes")


@click.command("top")
@click.argument("what", nargs=-1, metavar="[NAME]")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option(
    "--sort-by", type=click.Choice(["name", *_FIGURES]), default="name", help="Sort by this column, largest first."
)
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C; on a terminal with bars against limits.")
@click.option("--interval", type=DURATION, default=2.0, metavar="TIME", help="Refresh interval of -w.  [default: 2s]")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: table.")
@click.option("--no-headers", is_flag=True, help="Print no column titles.")
@click.pass_context
@only_reads
def top_(
    ctx: click.Context,
    what: Sequence[str],
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
    name = _name(what)
    if name and everywhere:
        raise click.UsageError("a name can't be combined with -A; leave one out")
    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE

    def ask() -> Use:
        answer = _ask(client, place, name, everywhere=everywhere)
        return Use(_sort(answer.get("items", [answer]), sort_by), answer.get("missing"))

    def show() -> None:
        use = ask()
        if use.items:
            say_table(_table(use, header=not no_headers, namespaces=everywhere))
        else:
            note("No running sandboxes." if everywhere else f"No running sandboxes in {place} namespace.")
        if message := use.without():
            note(message)

    if output is not None:
        say((yaml_text if output == "yaml" else json_text)(_ask(client, place, name, everywhere=everywhere)))
        return
    if not watch:
        show()
        return
    if sys.stdout.isatty():
        _live(ask, max(0.1, interval), sort_by, namespaces=everywhere)
    pause = threading.Event()
    while True:
        show()
        pause.wait(max(0.1, interval))


def _live(ask: Callable[[], Use], seconds: float, sort_by: str, *, namespaces: bool) -> NoReturn:
    """Show bars against limits on the whole terminal, until interrupted."""
    from rich.console import Console
    from rich.live import Live

    pause = threading.Event()
    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            live.update(bars(ask(), sort_by, namespaces=namespaces), refresh=True)
            pause.wait(seconds)


def bars(use: Use, sort_by: str, *, namespaces: bool) -> "Table":
    """Return a table with a bar for each limit."""
    from rich.table import Table
    from rich.text import Text

    title = f"{len(use.items)} running, by {sort_by}; Ctrl-C ends"
    caption = use.without()
    rendered = Table(
        title=title, title_justify="left", title_style="dim", box=None, pad_edge=False, padding=(0, 3, 0, 0)
    )
    rendered.caption, rendered.caption_justify = Text(caption, style="yellow") if caption else None, "left"
    name_columns = [*(["NAMESPACE"] if namespaces else []), "NAME", *(["HOST"] if use.has_hosts else [])]
    for column in (*name_columns, "CPU", "MEMORY", "PROCESSES", *_COUNTED, "UPTIME"):
        rendered.add_column(column, no_wrap=True, header_style="bold")
    for entry in use.items:
        usage = entry["usage"]
        rendered.add_row(
            *(one_line(word) for word in _names(entry, namespaces=namespaces, hosts=use.has_hosts)),
            _bar(usage["cpuPercent"], usage["cpuLimitPercent"], lambda value: f"{value:.0f}%"),
            _bar(usage["memoryUsageBytes"], usage["memoryLimitBytes"], size),
            _bar(usage["processes"], usage["processesLimit"], lambda value: f"{value:.0f}"),
            *(size(usage[_FIGURES[field]]) for field in _COUNTED.values()),
            duration(usage["uptimeSeconds"]),
        )
    return rendered


def _bar(amount: float, limit: float | None, format_amount: Callable[[float], str]) -> "Text":
    """Return a bar of what is used of a limit, with both in figures."""
    from rich.text import Text

    if not limit:
        return Text(f"{' ' * (_BAR_CELLS + 1)}{format_amount(amount)}")
    share = min(1.0, amount / limit)
    filled = max(int(amount > 0), round(share * _BAR_CELLS))
    colour = "red" if share >= _FULL else "yellow" if share >= _NEAR else "green"
    return Text.assemble(
        ("\u2588" * filled, colour),
        ("\u2591" * (_BAR_CELLS - filled), "dim"),
        f" {format_amount(amount)}/{format_amount(limit)}",
    )


def _name(what: Sequence[str]) -> str | None:
    """Return the sandbox of `NAME`, `sandbox NAME` or `sandbox/NAME`; None for all. Raises CliError, UsageError."""
    kind, _, name = what[0].rpartition("/") if what else ("", "", "")
    remaining = list(what[1:])
    if what and not kind and name in _SANDBOX_WORDS:
        kind, name = name, remaining.pop(0) if remaining else ""
    if kind and kind not in _SANDBOX_WORDS:
        raise CliError(f"{kind}: has no figures here; name a sandbox, or write `paddock get hosts` for the hosts'")
    if not kind and name in _HOST_WORDS:
        raise CliError(f"{name}: has no figures here; write `paddock get hosts`")
    if remaining:
        raise click.UsageError("name one sandbox, or none for all of them")
    return name or None


def _ask(client: Client, namespace: str, name: str | None, *, everywhere: bool) -> dict[str, Any]:
    plain = name or "-"
    place = "" if everywhere else f"namespaces/{segment(namespace)}/"
    metrics: dict[str, Any] = client.get(f"{place}sandboxes/{segment(plain)}/metrics")
    return metrics


def _sort(items: Sequence[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    by_name = sorted(items, key=lambda entry: (entry["metadata"]["namespace"], entry["metadata"]["name"]))
    if by == "name":
        return by_name
    return sorted(by_name, key=lambda entry: entry["usage"].get(_FIGURES[by]) or 0, reverse=True)


def _table(use: Use, *, header: bool, namespaces: bool) -> str:
    rows = [
        [*_names(entry, namespaces=namespaces, hosts=use.has_hosts), *_figures(entry["usage"])] for entry in use.items
    ]
    titles = [*(["NAMESPACE"] if namespaces else []), "NAME", *(["HOST"] if use.has_hosts else []), *_TITLES]
    return columns([titles, *rows] if header else rows)


def _names(item: Item, *, namespaces: bool, hosts: bool) -> list[str]:
    metadata = item["metadata"]
    space, host = [metadata["namespace"]] if namespaces else [], [item.get("host", "-")] if hosts else []
    return [*space, metadata["name"], *host]


def _figures(usage: Mapping[str, Any]) -> list[str]:
    return [
        f"{usage['cpuPercent']:.1f}",
        *(size(usage.get(_FIGURES[figure])) for figure in ("memory", "limit", "rx", "tx", "read", "write")),
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
    whole_seconds = int(seconds)
    for long, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole_seconds >= 2 * long:
            return f"{whole_seconds // long}{unit}"
    return f"{whole_seconds}s"
