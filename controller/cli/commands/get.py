"""`paddock get`."""

from collections.abc import Sequence
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.errors import Refused
from controller.cli.kinds import Kinds, Target
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, selector_option
from controller.cli.output import json_text, many, note, say, table, yaml_text


@click.command("get")
@click.argument("what", nargs=-1, metavar="KIND [NAME ...] | KIND/NAME ...")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of every namespace.")
@selector_option
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="Another form than a table.")
@click.option("--no-headers", is_flag=True, help="Leave the titles of the columns out.")
@click.pass_context
def get_(
    ctx: click.Context,
    what: Sequence[str],
    namespace: str | None,
    everywhere: bool,
    selector: str,
    output: str | None,
    no_headers: bool,
) -> None:
    """Show objects.

    \b
    paddock get sandboxes
    paddock get sb/quickstart -o yaml
    """
    client = connect(ctx)
    place = None if everywhere else namespace or DEFAULT_NAMESPACE
    targets = Kinds(client).targets(what)
    if any(each.names for each in targets) and (everywhere or selector):
        raise click.UsageError("a name can't be combined with -A or -l; leave one of them out")
    refused: list[Refused] = []
    if output in (None, "wide"):
        _tables(client, targets, place, selector, refused, wide=output == "wide", header=not no_headers)
    else:
        _objects(client, targets, place, selector, refused, output or "")
    for error in refused:
        error.show()
    ctx.exit(1 if refused else 0)


def _fetch(
    client: Client, target: Target, place: str | None, selector: str, refused: list[Refused], *, rows: bool
) -> list[Any]:
    """The answers for a target: one for a whole kind, or one for each name that is found."""
    if not target.names:
        return [client.get(target.resource.path(place), table=rows, labelSelector=selector)]
    found = []
    for name in target.names:
        try:
            found.append(client.get(target.resource.path(place, name), table=rows))
        except Refused as error:
            if error.reason != "NotFound":
                raise
            refused.append(error)
    return found


def _tables(
    client: Client,
    targets: Sequence[Target],
    place: str | None,
    selector: str,
    refused: list[Refused],
    *,
    wide: bool,
    header: bool,
) -> None:
    shown = []
    for kind in dict.fromkeys(each.resource for each in targets):
        answers = [
            answer
            for target in targets
            if target.resource == kind
            for answer in _fetch(client, target, place, selector, refused, rows=True)
        ]
        rows = [row for answer in answers for row in answer["rows"]]
        if rows:
            whole = {**answers[0], "rows": rows}
            shown.append(table(whole, wide=wide, header=header, namespaces=place is None and kind.namespaced))
    if shown:
        say("\n\n".join(shown))
    elif not refused:
        where = f" in {place} namespace" if place and any(each.resource.namespaced for each in targets) else ""
        note(f"No resources found{where}.")


def _objects(
    client: Client, targets: Sequence[Target], place: str | None, selector: str, refused: list[Refused], output: str
) -> None:
    found: list[Any] = []
    for target in targets:
        for answer in _fetch(client, target, place, selector, refused, rows=False):
            found += answer.get("items", [answer])
    if output == "name":
        for each in found:
            say(f"{each['kind'].lower()}.paddock/{each['metadata']['name']}")
        return
    single = len(found) == 1 and any(each.names for each in targets)
    if found or not refused:
        say((json_text if output == "json" else yaml_text)(found[0] if single else many(found)))
