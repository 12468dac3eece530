"""`paddock events`."""

import threading
from typing import Any, NoReturn

import click

from controller.cli.client import Client, connect, segment
from controller.cli.kinds import Kinds
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.output import json_text, note, say, table, yaml_text

_LOOK_SECONDS = 1.0
_NEWEST = 100  # are asked for at each look: to make thousands each second would keep the daemon busy
_MOST_KNOWN = 10_000  # then they are read as a whole again, and what is long gone is forgotten


@click.command("events")
@click.argument("what", required=False, metavar="[KIND/NAME]")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of every namespace.")
@click.option("-w", "--watch", is_flag=True, help="Go on showing what happens, until Ctrl-C.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Another form than a table.")
@click.option("--no-headers", is_flag=True, help="Leave the titles of the columns out.")
@click.pass_context
def events_(
    ctx: click.Context,
    what: str | None,
    namespace: str | None,
    everywhere: bool,
    watch: bool,
    output: str | None,
    no_headers: bool,
) -> None:
    """Show what happened to all objects, or to one (also one that is gone), newest last."""
    if watch and output is not None:
        raise click.UsageError("-w shows a table; leave -o out")
    client = connect(ctx)
    kind = name = ""
    if what:
        target = Kinds(client).targets([what])[0]
        kind, name = target.resource.kind, "".join(target.names)
    place = namespace or DEFAULT_NAMESPACE
    path = "events" if everywhere else f"namespaces/{segment(place)}/events"
    if watch:
        _follow(client, path, {"kind": kind, "name": name}, header=not no_headers, namespaces=everywhere)
    found = client.get(path, table=output is None, kind=kind, name=name)
    if output is not None:
        say((json_text if output == "json" else yaml_text)(found))
    elif found["rows"]:
        say(table(found, header=not no_headers, namespaces=everywhere))
    else:
        note("No events found." if everywhere else f"No events found in {place} namespace.")


def _follow(client: Client, path: str, of: dict[str, str], *, header: bool, namespaces: bool) -> NoReturn:
    """Show each event that is new, or has happened again, since the last look; Ctrl-C ends it.

    Events have no revision to be watched from, so the list is read again: mostly the end of it.
    """
    seen: dict[str, str] = {}
    pause = threading.Event()
    while True:
        found, known = _look(client, path, of, seen)
        now = _versions(found["rows"])
        rows = [row for row in found["rows"] if seen.get(uid := _metadata(row)["uid"]) != now[uid]]
        if rows:
            say(table({**found, "rows": rows}, header=header, namespaces=namespaces))
            header = False
        seen = {**known, **now}
        pause.wait(_LOOK_SECONDS)


def _look(client: Client, path: str, of: dict[str, str], seen: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What is to be looked through for news, and what stays known beside it.

    The newest events, if one of them is known, for then whatever is older is known too; otherwise all of them.
    """
    if seen and len(seen) < _MOST_KNOWN:
        found = client.get(path, table=True, limit=str(_NEWEST), **of)
        if _versions(found["rows"]).items() & seen.items():
            return found, seen
    return client.get(path, table=True, **of), {}


def _versions(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {each["uid"]: each["resourceVersion"] for each in map(_metadata, rows)}


def _metadata(row: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = row["object"]["metadata"]
    return found
