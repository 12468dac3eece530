"""`paddock attest`."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from controller.cli.client import connect
from controller.cli.kinds import Kinds
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.output import columns, json_text, say, say_table, yaml_text

_WORDS = {"True": "is secured", "False": "is NOT secured", "Unknown": "can't be attested"}
_COLUMNS = ("name", "found", "wanted")


@click.command("attest")
@click.argument("name")
@namespace_option
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: text.")
@click.option(
    "--report", is_flag=True, help="Show all confinement: system calls, capabilities, namespaces, mounts, ..."
)
@click.pass_context
def attest_(ctx: click.Context, name: str, namespace: str | None, output: str | None, report: bool) -> None:
    """Verify a running sandbox against its security level.

    The facts come from the host's kernel, not from a program in the sandbox. Exit code 0: all facts hold.

    \b
    paddock attest quickstart
    paddock attest quickstart --report
    paddock attest quickstart -o yaml
    """
    client = connect(ctx)
    resource = Kinds(client).targets([f"sandbox/{name.removeprefix('sandbox/')}"])[0].resource
    path = resource.path(namespace or DEFAULT_NAMESPACE, name.removeprefix("sandbox/"))
    found = client.get(f"{path}/attest")
    if output is not None:
        say((json_text if output == "json" else yaml_text)(found))
    else:
        say_table("\n".join(_lines(found, "report" if report else "facts")))
    if found["secured"] != "True":
        ctx.exit(1)


def _lines(found: Mapping[str, Any], what: str) -> Iterator[str]:
    yield f"sandbox/{found['metadata']['name']} {_WORDS[found['secured']]}"
    if found["secured"] != "True":
        yield f"  {found['reason']}: {found['message']}"
    if what == "report":
        rows = [[each["name"], each["found"]] for each in found["report"]]
    else:
        rows = [["", "WHAT", "FOUND", "WANTED"]]
        rows += [["ok" if each["holds"] else "!!", *(each[name] for name in _COLUMNS)] for each in found["facts"]]
    if found[what]:
        yield columns(rows)
