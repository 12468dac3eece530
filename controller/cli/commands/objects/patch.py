"""`paddock patch`."""

from collections.abc import Sequence
from typing import Any

import click

from controller.cli.errors import CliError
from controller.cli.objects import files
from controller.cli.objects.patch import change_line, dry_run_option, find_one
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.text.output import say


@click.command("patch")
@click.argument("what", nargs=-1, metavar="KIND NAME | KIND/NAME")
@namespace_option
@click.option("--type", "type_", type=click.Choice(["merge", "json"]), default="merge", help="[default: merge]")
@click.option("-p", "--patch", "patch", metavar="PATCH", help="The patch, in YAML or JSON.")
@click.option("--patch-file", metavar="FILE", help="A file with the patch, or - for stdin.")
@dry_run_option
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Print the patched object in this format."
)
@click.pass_context
def patch_(
    ctx: click.Context,
    what: Sequence[str],
    namespace: str | None,
    type_: str,
    patch: str | None,
    patch_file: str | None,
    dry_run: str,
    output: str | None,
) -> None:
    """Change parts of an object by a merge patch, or by a JSON patch (--type json).

    \b
    paddock patch sb quickstart -p '{spec: {runState: Suspended}}'
    paddock patch sb/quickstart --type json -p '[{op: remove, path: /spec/resources/limits/cpu}]'
    """
    if (patch is None) == (patch_file is None):
        raise click.UsageError("give the patch with either -p or --patch-file")
    read = _read("--patch", patch) if patch is not None else _from_file(str(patch_file))
    from controller.cli.client import connect

    client, trial = connect(ctx), dry_run == "server"
    target = find_one(client, what, namespace or DEFAULT_NAMESPACE)
    before = target.read(client)
    after = target.patch(client, read, type_=type_, dry_run=trial)
    if output is None:
        say(change_line(target, "patched", before, after, dry_run=trial))
    else:
        say(str(target) if output == "name" else _formatted(after, output))


def _formatted(obj: Any, output: str) -> str:
    from controller.cli.text.output import json_text, yaml_text

    return json_text(obj) if output == "json" else yaml_text(obj)


def _from_file(name: str) -> Any:
    documents = files.read([name])
    if len(documents) != 1:
        raise CliError(f"{name} is a folder; name one file with the patch")
    return _read(documents[0]["file"], documents[0]["text"])


def _read(file: str, text: str) -> Any:
    """Parse the patch; YAML is read as in spec files."""
    from controller.documents.yaml_tree import read

    trees, problems = read(file, text)
    if problems:
        raise CliError("nothing was changed\n" + "\n".join(map(str, problems)))
    if len(trees) != 1:
        raise CliError(f"{file} must hold one patch, not {len(trees) or 'nothing'}")
    return trees[0].root.plain()
