"""`paddock audit`: who asked for what, and whether the log is still as it was written."""

import time
from typing import Any

import click

from controller.cli.client import connect
from controller.cli.errors import CliError
from controller.cli.options import DURATION
from controller.cli.output import columns, json_text, note, say, yaml_text


@click.group("audit", invoke_without_command=True)
@click.option("--since", type=DURATION, help="Only what is newer than this: 30m, 24h, 7d.")
@click.option("--actor", metavar="WORDS", default="", help="Only of those whose name holds these words.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="The newest so many.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Another form than a table.")
@click.pass_context
def audit_(
    ctx: click.Context, /, since: float | None, actor: str, refused: bool, limit: int, output: str | None
) -> None:
    """Show who asked for what, from where, and the decision; newest last.

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
        say(columns([["TIME", "ACTOR", "FROM", "VERB", "OBJECT", "DECISION", "DETAIL"], *map(_row, items)]))
    else:
        note("No entries found.")


@audit_.command("verify")
@click.option("--expect", metavar="ID:HASH", help="What an earlier verify printed: it must still be in the log.")
@click.pass_context
def verify(ctx: click.Context, expect: str | None) -> None:
    """Compute every hash anew. Exit code 1 when an entry was changed, taken out or put in.

    Whoever can write the database can also write a whole new log: note the line that this prints somewhere else, and
    give it to --expect later.
    """
    client = connect(ctx)
    found = client.get("audit/verify")
    if found["problem"]:
        raise CliError(f"the audit log is not as it was written: {found['problem']}")
    if expect is not None:
        _check(client, expect, found)
    pruned = f", after {found['pruned']} that were pruned" if found["pruned"] else ""
    thinned = f", without {found['thinned']} of callers with too many" if found["thinned"] else ""
    say(f"{found['entries']} entries are as they were written{pruned}{thinned}")
    say(f"{found['lastId']}:{found['lastHash']}")


def _check(client: Any, expect: str, found: dict[str, Any]) -> None:
    number, _, wanted = expect.partition(":")
    if not number.isdigit() or not wanted:
        raise click.UsageError("--expect takes ID:HASH, as `paddock audit verify` prints it")
    pruned = f"entry {number} was pruned: what it expects can't be compared any more"
    if int(number) <= found["pruned"]:
        raise CliError(pruned)
    limit = min(100_000, found["lastId"] - int(number) + 1)
    items = client.get("audit", limit=str(limit))["items"] if limit > 0 else []
    if any(each["id"] == int(number) and each["hash"] == wanted for each in items):
        return
    for each in items:
        if each["verb"] == "thinned" and 0 < each["id"] - int(number) < each["detail"]["entries"]:
            raise CliError(pruned)
    raise CliError(f"entry {number} is not the one that was expected: the log was written anew")


def _row(each: dict[str, Any]) -> list[str]:
    obj = each["object"]
    named = "/".join(part for part in (obj["kind"].lower(), obj["namespace"], obj["name"]) if part) or "-"
    detail = " ".join(f"{key}={_text(value)}" for key, value in each["detail"].items())
    return [each["time"], each["actor"], each["source"] or "-", each["verb"], named, each["outcome"], detail]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
