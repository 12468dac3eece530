"""`paddock audit`: the audit log and the check of its hash chain."""

import time
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import CliError
from controller.cli.options import DURATION, Group
from controller.cli.text.output import columns, json_text, note, say, say_table, yaml_text

_MOST = 100_000  # entries in one answer


@click.group("audit", cls=Group, invoke_without_command=True)
@click.option("--since", type=DURATION, help="Only entries newer than this: 30m, 24h, 7d.")
@click.option("--actor", metavar="TEXT", default="", help="Only callers whose name contains this text.")
@click.option("--refused", "refused_only", is_flag=True, help="Only refused requests.")
@click.option(
    "--limit",
    type=click.IntRange(1, _MOST),
    default=1000,
    show_default=True,
    help="At most so many entries, the newest.",
)
@click.option("--writer", metavar="NAME", default="", help="Only entries of that daemon: a host's name, or api/NAME.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "yaml"]),
    help="Output format; default: table. wide: with the writers.",
)
@click.pass_context
def audit_(
    ctx: click.Context,
    /,
    since: float | None,
    actor: str,
    refused_only: bool,
    limit: int,
    writer: str,
    output: str | None,
) -> None:
    """Show requests with caller, source and decision; newest last.

    \b
    paddock audit --since 24h --refused
    paddock audit verify
    """
    if ctx.invoked_subcommand is not None:
        return
    after = "" if since is None else str(max(0.0, time.time() - since))
    page = connect(ctx).get("audit", sinceTime=after, limit=str(limit), writer=writer)
    items = [
        entry
        for entry in page["items"]
        if actor in entry["actor"] and (not refused_only or entry["outcome"] == "refused")
    ]
    if output in ("json", "yaml"):
        say((json_text if output == "json" else yaml_text)({**page, "items": items}))
    elif items:
        say_table(columns(_table(items, wide=output == "wide")))
    else:
        note("No entries found.")


@audit_.command("verify")
@click.option(
    "--expect",
    metavar="WRITER:ID:HASH",
    multiple=True,
    help="A line of an earlier verify: this entry must still be in the log. May be repeated.",
)
@click.pass_context
def verify(ctx: click.Context, expect: tuple[str, ...]) -> None:
    """Verify the hash chain of each writer. Exit code 1 when an entry was changed, removed or inserted.

    Whoever can write the database can also write a whole new log. Store the printed lines elsewhere, and pass them to
    --expect later. A line without a writer is that of older versions, which had one chain.
    """
    client = connect(ctx)
    verification = client.get("audit/verify")
    if verification["problem"]:
        raise CliError(f"audit log: {verification['problem']}; restore it from a backup")
    for expectation in expect:
        _check(client, expectation, verification["chains"])
    chains = f" in {len(verification['chains'])} chains" if len(verification["chains"]) > 1 else ""
    pruned = f", after {verification['pruned']} pruned ones" if verification["pruned"] else ""
    thinned = f", without {verification['thinned']} dropped for busy callers" if verification["thinned"] else ""
    say(f"{verification['entries']} entries{chains} are unchanged{pruned}{thinned}")
    for chain in verification["chains"]:
        say(":".join(filter(None, (chain["writer"], str(chain["lastId"]), chain["lastHash"]))))


def _check(client: Client, expect: str, chains: list[dict[str, Any]]) -> None:
    mark, _, expected = expect.rpartition(":")
    writer, _, number = mark.rpartition(":")
    if not number.isdigit() or not expected:
        raise click.UsageError("--expect takes WRITER:ID:HASH, as `paddock audit verify` prints it")
    entry = f"entry {number} of {writer}" if writer else f"entry {number}"
    rewritten = f"{entry} differs from the expected one: the log was rewritten"
    pruned = f"{entry} was pruned and can't be compared; expect a newer entry"
    chain = next((chain for chain in chains if chain["writer"] == writer), None)
    if chain is None:
        raise CliError(rewritten)
    if int(number) <= chain["pruned"]:
        raise CliError(pruned)
    limit = chain["lastId"] - int(number) + 1
    if limit > _MOST:
        raise CliError(f"{entry} has more than {_MOST} newer ones and can't be compared; expect a newer entry")
    query = {"writer": writer, "limit": str(limit)}  # "" is a writer, too
    items = client.request("GET", "audit", params=query)["items"] if limit > 0 else []
    if any(record["id"] == int(number) and record["hash"] == expected for record in items):
        return
    for record in items:
        if record["verb"] == "thinned" and 0 < record["id"] - int(number) < record["detail"]["entries"]:
            raise CliError(pruned)
    raise CliError(rewritten)


def _table(items: list[dict[str, Any]], *, wide: bool) -> list[list[str]]:
    """Return title and rows; with the writers, if there are several."""
    wide = wide or len({entry["writer"] for entry in items}) > 1
    titles = ["TIME", *(["WRITER"] if wide else []), "ACTOR", "FROM", "VERB", "OBJECT", "DECISION", "DETAIL"]
    return [titles, *(_row(entry, wide=wide) for entry in items)]


def _row(entry: dict[str, Any], *, wide: bool) -> list[str]:
    obj = entry["object"]
    object_name = "/".join(part for part in (obj["kind"].lower(), obj["namespace"], obj["name"]) if part) or "-"
    detail = " ".join(f"{key}={_text(value)}" for key, value in entry["detail"].items())
    writer = [entry["writer"] or "-"] if wide else []
    return [
        entry["time"],
        *writer,
        entry["actor"],
        entry["source"] or "-",
        entry["verb"],
        object_name,
        entry["outcome"],
        detail,
    ]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
