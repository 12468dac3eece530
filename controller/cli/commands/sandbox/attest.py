"""`paddock attest`."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from controller.cli.client import connect
from controller.cli.objects.kinds import Kinds
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.text.output import columns, json_text, say, say_table, yaml_text

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
    attestation = client.get(f"{path}/attest")
    if output is not None:
        say((json_text if output == "json" else yaml_text)(attestation))
    else:
        say_table("\n".join(_lines(attestation, "report" if report else "facts")))
    if attestation["secured"] != "True":
        ctx.exit(1)


def _lines(attestation: Mapping[str, Any], what: str) -> Iterator[str]:
    yield f"sandbox/{attestation['metadata']['name']} {_WORDS[attestation['secured']]}"
    if attestation["secured"] != "True":
        yield f"  {attestation['reason']}: {attestation['message']}"
    if what == "report":
        rows = [[fact["name"], fact["found"]] for fact in attestation["report"]]
    else:
        rows = [["", "WHAT", "FOUND", "WANTED"]]
        rows += [["ok" if fact["holds"] else "!!", *(fact[name] for name in _COLUMNS)] for fact in attestation["facts"]]
    if attestation[what]:
        yield columns(rows)
