"""`paddock events`."""

import threading
from typing import Any, NoReturn

import click

from controller.cli.client import Client, connect, segment
from controller.cli.errors import only_reads
from controller.cli.objects.kinds import Kinds
from controller.cli.objects.watch import Outage
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.text.output import json_text, note, say, say_table, table, yaml_text
from paddock._client.errors import ClientError

_POLL_SECONDS = 1.0
_NEWEST = 100  # events per poll: rendering thousands each second would keep the daemon busy
_MAX_KNOWN = 10_000  # then all are read again, and old ones are forgotten


@click.command("events")
@click.argument("what", required=False, metavar="[KIND/NAME]")
@click.option("--for", "of", metavar="KIND/NAME", help="Only events of this object, as the argument.")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Show new events until Ctrl-C.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: table.")
@click.option("--no-headers", is_flag=True, help="Print no column titles.")
@click.pass_context
@only_reads
def events_(
    ctx: click.Context,
    what: str | None,
    of: str | None,
    namespace: str | None,
    everywhere: bool,
    watch: bool,
    output: str | None,
    no_headers: bool,
) -> None:
    """Show events of all objects, or of one (also a deleted one), newest last."""
    if watch and output is not None:
        raise click.UsageError("-w can't be combined with -o; leave one out")
    if what and of:
        raise click.UsageError("--for names the object as the argument does; give one of them")
    what = what or of
    client = connect(ctx)
    kind = name = ""
    if what:
        target = Kinds(client).targets([what], namespace or DEFAULT_NAMESPACE)[0]
        kind, name = target.resource.kind, "".join(target.names)
        everywhere = everywhere or not target.resource.namespaced  # such as a host's: they are in no namespace
    place = namespace or DEFAULT_NAMESPACE
    path = "events" if everywhere else f"namespaces/{segment(place)}/events"
    if watch:
        _follow(client, path, {"kind": kind, "name": name}, header=not no_headers, namespaces=everywhere)
    page = client.get(path, table=output is None, kind=kind, name=name)
    if output is not None:
        say((json_text if output == "json" else yaml_text)(page))
    elif page["rows"]:
        say_table(table(page, header=not no_headers, namespaces=everywhere))
    else:
        note("No events found." if everywhere else f"No events found in {place} namespace.")


def _follow(client: Client, path: str, of: dict[str, str], *, header: bool, namespaces: bool) -> NoReturn:
    """Print each event that is new or repeated since the last poll, until Ctrl-C.

    Events have no revision to watch from, so the end of the list is polled.
    """
    versions: dict[str, str] = {}
    pause, outage = threading.Event(), Outage()
    while True:
        try:
            page, known_versions = _poll(client, path, of, versions)
            outage.end()
        except ClientError as error:
            outage.pause(error)
            continue
        now = _versions(page["rows"])
        rows = [row for row in page["rows"] if versions.get(uid := _metadata(row)["uid"]) != now[uid]]
        if rows:
            say_table(table({**page, "rows": rows}, header=header, namespaces=namespaces))
            header = False
        versions = {**known_versions, **now}
        pause.wait(_POLL_SECONDS)


def _poll(
    client: Client, path: str, of: dict[str, str], versions: dict[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the events to compare, and the known ones to keep.

    The newest events are enough if one of them is known: then all older ones are known too.
    """
    if versions and len(versions) < _MAX_KNOWN:
        page = client.get(path, table=True, limit=str(_NEWEST), **of)
        if _versions(page["rows"]).items() & versions.items():
            return page, versions
    return client.get(path, table=True, **of), {}


def _versions(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {metadata["uid"]: metadata["resourceVersion"] for metadata in map(_metadata, rows)}


def _metadata(row: dict[str, Any]) -> dict[str, str]:
    metadata: dict[str, str] = row["object"]["metadata"]
    return metadata
