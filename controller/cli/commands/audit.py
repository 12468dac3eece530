"""`paddock audit`: the audit log and the check of its hash chain."""

import time
from typing import Any

import click

from controller.cli.client import connect
from controller.cli.errors import CliError
from controller.cli.options import DURATION
from controller.cli.output import columns, json_text, note, say, say_table, yaml_text


@click.group("audit", invoke_without_command=True)
@click.option("--since", type=DURATION, help="Only entries newer than this: 30m, 24h, 7d.")
@click.option("--actor", metavar="TEXT", default="", help="Only callers whose name contains this text.")
@click.option("--refused", is_flag=True, help="Only refused requests.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="At most so many entries, the newest.",
)
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: table.")
@click.pass_context
def audit_(
    ctx: click.Context, /, since: float | None, actor: str, refused: bool, limit: int, output: str | None
) -> None:
    """Show requests with caller, source and decision; newest last.

    \b
    paddock audit --since 24h --refused
    paddock audit verify
    """
    if ctx.invoked_subcommand is not None:
        return
    after = "" if since is None else str(max(0.0, time.time() - since))
    found = connect(ctx).get("audit", sinceTime=after, limit=str(limit))
    items = [
        each for each in found["items"] if actor in each["actor"] and (not refused or each["outcome"] == "refused")
    ]
    if output is not None:
        say((json_text if output == "json" else yaml_text)({**found, "items": items}))
    elif items:
        say_table(columns([["TIME", "ACTOR", "FROM", "VERB", "OBJECT", "DECISION", "DETAIL"], *map(_row, items)]))
    else:
        note("No entries found.")


@audit_.command("verify")
@click.option("--expect", metavar="ID:HASH", help="Output of an earlier verify: this entry must still be in the log.")
@click.pass_context
def verify(ctx: click.Context, expect: str | None) -> None:
    """Verify the hash chain. Exit code 1 when an entry was changed, removed or inserted.

    Whoever can write the database can also write a whole new log. Store the printed line elsewhere, and pass it to
    --expect later.
    """
    client = connect(ctx)
    found = client.get("audit/verify")
    if found["problem"]:
        raise CliError(f"audit log: {found['problem']}; restore it from a backup")
    if expect is not None:
        _check(client, expect, found)
    pruned = f", after {found['pruned']} pruned ones" if found["pruned"] else ""
    thinned = f", without {found['thinned']} dropped for busy callers" if found["thinned"] else ""
    say(f"{found['entries']} entries are unchanged{pruned}{thinned}")
    say(f"{found['lastId']}:{found['lastHash']}")


def _check(client: Any, expect: str, found: dict[str, Any]) -> None:
    number, _, expected = expect.partition(":")
    if not number.isdigit() or not expected:
        raise click.UsageError("--expect takes ID:HASH, as `paddock audit verify` prints it")
    pruned = f"entry {number} was pruned and can't be compared; expect a newer entry"
    if int(number) <= found["pruned"]:
        raise CliError(pruned)
    limit = min(100_000, found["lastId"] - int(number) + 1)
    items = client.get("audit", limit=str(limit))["items"] if limit > 0 else []
    if any(each["id"] == int(number) and each["hash"] == expected for each in items):
        return
    for each in items:
        if each["verb"] == "thinned" and 0 < each["id"] - int(number) < each["detail"]["entries"]:
            raise CliError(pruned)
    raise CliError(f"entry {number} differs from the expected one: the log was rewritten")


def _row(each: dict[str, Any]) -> list[str]:
    obj = each["object"]
    named = "/".join(part for part in (obj["kind"].lower(), obj["namespace"], obj["name"]) if part) or "-"
    detail = " ".join(f"{key}={_text(value)}" for key, value in each["detail"].items())
    return [each["time"], each["actor"], each["source"] or "-", each["verb"], named, each["outcome"], detail]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
