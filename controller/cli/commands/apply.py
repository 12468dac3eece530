"""`paddock apply`."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from controller.cli import files
from controller.cli.errors import CliError
from controller.cli.options import files_option, namespace_option, set_fields, set_options
from controller.cli.output import say


@click.command("apply")
@files_option
@namespace_option
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    help="client: only check the files, without a daemon. server: check and merge, but write nothing.",
)
@set_options
@click.option("--plan", is_flag=True, help="With --dry-run=server: also the engine calls that would follow.")
@click.pass_context
def apply_(
    ctx: click.Context,
    /,
    files_: Sequence[str],
    recursive: bool,
    namespace: str | None,
    dry_run: str,
    plan: bool,
    **as_set: Any,
) -> None:
    """Create or change objects as spec files say: all of them, or none and every reason.

    \b
    paddock apply -f specs/quickstart.yaml
    paddock apply -f specs/ -R --dry-run=server
    paddock apply -f specs/ --applyset web --prune
    """
    if not files_:
        raise click.UsageError("name what to apply with -f FILE, -f FOLDER or -f -")
    if plan and dry_run != "server":
        raise click.UsageError("--plan writes nothing: say --dry-run=server with it, or use `paddock diff --plan`")
    fields = set_fields(**as_set)
    documents = files.read(files_, recursive=recursive)
    if dry_run == "client":
        _check(documents, namespace)
        if as_set["prune"]:
            _tell_pruned(ctx, {"documents": documents, "namespace": namespace, **fields})
        return
    from controller.cli.client import connect

    if plan:
        from controller.cli.plan_text import plan_text, quota_lines

        body = {"documents": documents, "namespace": namespace, "plan": True, **fields}
        items = connect(ctx).request("POST", "diff", json=body)["items"]
        for each in (*map(plan_text, items), *quota_lines(items)):
            say(each)
        return
    body = {"documents": documents, "namespace": namespace, "dryRun": dry_run == "server", **fields}
    suffix = " (server dry run)" if dry_run == "server" else ""
    for each in connect(ctx).request("POST", "apply", json=body)["items"]:
        say(f"{each['resource']}/{each['metadata']['name']} {each['result']}{suffix}")


def _tell_pruned(ctx: click.Context, body: Mapping[str, Any]) -> None:
    """What would be pruned: the daemon alone knows what is in the set."""
    from controller.cli.client import connect

    for each in connect(ctx).request("POST", "apply", json={**body, "dryRun": True})["items"]:
        if each["result"] == "pruned":
            say(f"{each['resource']}/{each['metadata']['name']} pruned (client dry run)")


def _check(documents: Sequence[dict[str, str]], namespace: str | None) -> None:
    """All that can be told without a daemon: whether each document is right by itself."""
    from controller.documents.document import parse, repeated
    from controller.kinds.registry import discover

    good, problems = [], []
    for each in documents:
        found, wrong = parse(each["file"], each["text"], discover(), namespace=namespace)
        good += found
        problems += wrong
    problems += repeated(good)
    if problems:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        raise CliError("\n".join((count, *map(str, problems))))
    for document in good:
        say(f"{document.kind.name.lower()}.paddock/{document.name} valid (client dry run)")
