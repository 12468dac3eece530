"""`paddock apply`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from controller.cli import files
from controller.cli.compose import ComposeFile, compose_options
from controller.cli.errors import CliError
from controller.cli.options import files_option, namespace_option, set_fields, set_options
from controller.cli.output import say

if TYPE_CHECKING:
    from controller.documents.document import Document


@click.command("apply")
@files_option
@namespace_option
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    help="client: validate the files without a daemon. server: validate and merge without writing.",
)
@set_options
@compose_options
@click.option("--plan", is_flag=True, help="With --dry-run=server: also show the resulting engine calls.")
@click.pass_context
def apply_(
    ctx: click.Context,
    /,
    files_: Sequence[str],
    recursive: bool,
    namespace: str | None,
    dry_run: str,
    plan: bool,
    compose_file: str | None,
    project: str | None,
    variables: Sequence[str],
    **as_set: Any,
) -> None:
    """Create or change objects from spec files: all of them, or none and every reason.

    With --compose each service becomes a sandbox, PROJECT-SERVICE. The project is an apply set: --prune deletes the
    sandboxes of services that the file no longer has. `x-paddock:`, in a service or at the top, has the fields of a
    Sandbox that Compose lacks: securityLevel, network, lifecycle, priority.

    \b
    paddock apply -f specs/quickstart.yaml
    paddock apply -f specs/ -R --dry-run=server
    paddock apply -f specs/ --applyset web --prune
    paddock apply --compose compose.yaml --var TAG=1
    """
    if bool(files_) == bool(compose_file):
        raise click.UsageError("no files given; add -f FILE, -f FOLDER or -f -, or else --compose FILE")
    if plan and dry_run != "server":
        raise click.UsageError("--plan needs --dry-run=server; add it, or use `paddock diff --plan`")
    compose = ComposeFile.of(compose_file, project, variables)
    good: Sequence[Document] = ()
    if compose is not None:
        good = compose.add_set(as_set, namespace)
    fields = set_fields(**as_set)
    documents = [compose.body()] if compose is not None else files.read(files_, recursive=recursive)
    if dry_run == "client":
        _print_valid(good or _checked(documents, namespace))
        if as_set["prune"]:
            _print_pruned(ctx, {"documents": documents, "namespace": namespace, **fields})
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


def _print_pruned(ctx: click.Context, body: Mapping[str, Any]) -> None:
    """Print the objects to prune; only the daemon knows the set."""
    from controller.cli.client import connect

    for each in connect(ctx).request("POST", "apply", json={**body, "dryRun": True})["items"]:
        if each["result"] == "pruned":
            say(f"{each['resource']}/{each['metadata']['name']} pruned (client dry run)")


def _checked(documents: Sequence[dict[str, Any]], namespace: str | None) -> "Sequence[Document]":
    """Validate each document by itself, without a daemon. Raises CliError with every problem."""
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
    return good


def _print_valid(documents: "Sequence[Document]") -> None:
    for document in documents:
        say(f"{document.kind.name.lower()}.paddock/{document.name} valid (client dry run)")
