"""`paddock apply`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from controller.cli.compose.file import ComposeFile, allow_outside_option, compose_options
from controller.cli.errors import CliError
from controller.cli.objects import files
from controller.cli.options import DURATION, files_option, namespace_option, set_fields, set_options
from controller.cli.text.output import note, object_format, say

if TYPE_CHECKING:
    from controller.cli.client import Client
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
@allow_outside_option
@click.option("--plan", is_flag=True, help="With --dry-run=server: also show the resulting engine calls.")
@click.option("--wait", is_flag=True, help="Wait until the applied sandboxes are Ready.")
@click.option("--timeout", type=DURATION, default="120s", help="With --wait: how long to wait. [default: 120s]")
@click.option("-o", "--output", type=click.Choice(["name", "json", "yaml"]), help="Print the objects instead.")
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
    allow_outside: bool,
    wait: bool,
    timeout: float,
    output: str | None,
    **as_set: Any,
) -> None:
    """Create or change objects from spec files, or from a Compose file: all of them, or none and every reason.

    With --compose each service becomes a sandbox, PROJECT-SERVICE. The project is an apply set: --prune deletes the
    sandboxes of services that the file no longer has. `x-paddock:`, in a service or at the top, has the fields of a
    Sandbox that Compose lacks: securityLevel, network, lifecycle, priority.

    \b
    paddock apply -f specs/quickstart.yaml
    paddock apply -f specs/ -R --dry-run=server
    paddock apply -f specs/ --applyset web --prune
    paddock apply --compose compose.yaml --var TAG=1
    paddock apply -f specs/quickstart.yaml --wait
    """
    from controller.cli.client import connect

    _refuse_contradictions(bool(files_), bool(compose_file), dry_run, plan=plan, prints=wait or bool(output))
    compose = ComposeFile.of(compose_file, project, variables, allow_outside=allow_outside)
    good: Sequence[Document] = ()
    if compose is not None:
        compose, good = compose.prepare(as_set, namespace, connect(ctx) if dry_run != "client" else None)
    documents = [compose.body()] if compose is not None else files.read(files_, recursive=recursive)
    body = {"documents": documents, "namespace": namespace, **set_fields(**as_set)}
    if dry_run == "client":
        _print_valid(good or _check_documents(documents, namespace))
        if as_set["prune"]:
            _print_pruned(ctx, body)
        return
    client = connect(ctx)
    if plan:
        _print_plan(client, body)
        return
    body["dryRun"] = dry_run == "server"
    suffix = " (server dry run)" if dry_run == "server" else ""
    items = client.request("POST", "apply", json=body)["items"]
    if output is None:
        for outcome in items:
            say(f"{outcome['resource']}/{outcome['metadata']['name']} {outcome['result']}{suffix}")
    if wait:
        _wait(client, items, timeout)
    if output is not None:
        _show(client, items, output)


def _refuse_contradictions(files_: bool, compose: bool, dry_run: str, *, plan: bool, prints: bool) -> None:
    if files_ == compose:
        raise click.UsageError("no files given; add -f FILE, -f FOLDER or -f -, or else --compose FILE")
    if plan and dry_run != "server":
        raise click.UsageError("--plan needs --dry-run=server; add it, or use `paddock diff --plan`")
    if dry_run != "none" and prints:
        raise click.UsageError("--wait and -o need what a dry run does not write; leave --dry-run out")


def _print_plan(client: "Client", body: Mapping[str, Any]) -> None:
    from controller.cli.text.plan_text import plan_text, quota_lines

    items = client.request("POST", "diff", json={**body, "plan": True})["items"]
    for line in (*map(plan_text, items), *quota_lines(items)):
        say(line)


def _wait(client: "Client", items: Sequence[Any], timeout: float) -> None:
    """Wait until all applied sandboxes are Ready, and show how many are."""
    import time

    from controller.cli.objects.kinds import Resource
    from controller.cli.objects.watch import Condition, Object, until
    from controller.cli.text.progress import pulls_shown, waiting_for

    resource, ready = Resource("sandboxes", "sandbox", "Sandbox", namespaced=True), Condition("Ready")
    places: dict[str, list[str]] = {}
    for outcome in items:
        if outcome["kind"] == "Sandbox" and outcome["result"] not in ("pruned", "deleted"):
            places.setdefault(outcome["metadata"]["namespace"], []).append(outcome["metadata"]["name"])
    count, reached = sum(map(len, places.values())), set[tuple[str, str]]()
    deadline, late = time.monotonic() + timeout, list[str]()
    with waiting_for(f"{count} sandboxes: 0/{count} Ready") as waiting, pulls_shown(client, waiting):
        for place, names in places.items():

            def done(name: str, obj: Object | None, place: str = place) -> bool:
                if ready.reached(obj):
                    reached.add((place, name))
                    waiting.count(f"{count} sandboxes: {len(reached)}/{count} Ready")
                elif obj is not None:
                    obstacle = ready.why_not(obj)
                    waiting.report(f"sandbox {name}", obstacle.reason, obstacle.message, counts=obstacle.counts)
                return (place, name) in reached

            late += until(client, resource, place, names=names, done=done, deadline=deadline)
    if late:
        raise CliError(
            f"{len(reached)}/{count} Ready within {timeout:g} s; not: {', '.join(late)}; see `paddock why NAME`"
        )
    note(f"{count}/{count} Ready")


def _show(client: "Client", items: Sequence[Any], output: str) -> None:
    """Print the applied objects."""
    objects = []
    for outcome in items:
        if outcome["result"] not in ("pruned", "deleted"):
            metadata = outcome["metadata"]
            place = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
            objects.append(client.get(f"{place}{outcome['plural']}/{metadata['name']}"))
    say(object_format(output)(objects, len(objects) == 1), exact=True)


def _print_pruned(ctx: click.Context, body: Mapping[str, Any]) -> None:
    """Print the objects to prune; only the daemon knows the set."""
    from controller.cli.client import connect

    for outcome in connect(ctx).request("POST", "apply", json={**body, "dryRun": True})["items"]:
        if outcome["result"] == "pruned":
            say(f"{outcome['resource']}/{outcome['metadata']['name']} pruned (client dry run)")


def _check_documents(documents: Sequence[dict[str, Any]], namespace: str | None) -> "Sequence[Document]":
    """Validate each document by itself, without a daemon. Raises CliError with every problem."""
    from controller.documents.document import find_duplicates, parse
    from controller.kinds.registry import discover

    good, problems = [], []
    for source in documents:
        valid, wrong = parse(source["file"], source["text"], discover(), namespace=namespace)
        good += valid
        problems += wrong
    problems += find_duplicates(good)
    if problems:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        raise CliError("\n".join((count, *map(str, problems))))
    return good


def _print_valid(documents: "Sequence[Document]") -> None:
    for document in documents:
        say(f"{document.kind.name.lower()}.paddock/{document.name} valid (client dry run)")
