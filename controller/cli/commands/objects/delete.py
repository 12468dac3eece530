"""`paddock delete`."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from controller.cli.client import Client, connect
from controller.cli.compose.file import ComposeFile, compose_options
from controller.cli.errors import CliError, Refused, as_cli_error
from controller.cli.objects import files
from controller.cli.objects.kinds import Kinds, Resource, Target
from controller.cli.objects.watch import Gone, Object, until
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, files_option, namespace_option, selector_option
from controller.cli.text.output import note, say
from controller.cli.text.progress import waiting_for
from controller.kinds.common.apply_set import LABEL

VOLUME = "Volume"  # of one host, and gone once its deletion is answered
Query = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Deletion:
    """An object whose deletion was requested; the uid tells it from a new one of that name."""

    resource: Resource
    namespace: str
    name: str
    uid: str


@click.command("delete")
@click.argument("what", nargs=-1, metavar="KIND NAME ... | KIND/NAME ...")
@files_option
@compose_options
@namespace_option
@selector_option
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option(
    "--cascade",
    type=click.Choice(["background", "foreground", "orphan"]),
    default="background",
    help="Owned objects: deleted after (background) or before (foreground) their owner, or kept (orphan).",
)
@click.option("--wait/--no-wait", default=True, help="Wait until the objects are gone. [default: wait]")
@click.option("--timeout", type=DURATION, default="60s", help="How long to wait. [default: 60s]")
@click.option("--ignore-not-found", is_flag=True, help="Ignore objects that do not exist.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    is_flag=False,
    flag_value="server",
    help="Print what would be deleted, and delete nothing.",
)
@click.option(
    "--grace-period",
    type=click.IntRange(min=0, max=3600),
    metavar="SECONDS",
    help="From SIGTERM to SIGKILL, instead of the sandbox's own.",
)
@click.option("--now", is_flag=True, help="Short for --grace-period=1.")
@click.option("--force", is_flag=True, help="Short for --grace-period=0: kill at once.")
@click.option("--host", default="", metavar="NAME", help="The host of a volume whose name several hosts have.")
@click.pass_context
def delete_(
    ctx: click.Context,
    /,
    what: Sequence[str],
    files_: Sequence[str],
    recursive: bool,
    compose_file: str | None,
    project: str | None,
    variables: Sequence[str],
    namespace: str | None,
    selector: str,
    everything: bool,
    cascade: str,
    wait: bool,
    timeout: float,
    ignore_not_found: bool,
    dry_run: str,
    host: str,
    **ending: Any,
) -> None:
    """Delete objects and all that they own, and wait until they are gone.

    Objects are deleted before those that they refer to: a pool before its template.

    \b
    paddock delete sandbox quickstart
    paddock delete -f specs/quickstart.yaml
    paddock delete --compose compose.yaml
    """
    if sum(map(bool, (what, files_, compose_file))) != 1:
        raise click.UsageError("no objects given; write KIND NAME, KIND/NAME, -f FILE or --compose FILE")
    grace = _grace_seconds(**ending)
    compose = ComposeFile.of(compose_file, project, variables)
    if compose is not None:
        if selector or everything:
            raise click.UsageError("a Compose project is deleted as a whole; leave -l and --all out")
        what, selector = ("sandboxes",), f"{LABEL}={compose.apply_set(namespace)}"
    client = connect(ctx)
    kinds = Kinds(client)
    deletions: list[_Deletion] = []
    refusals: list[Refused] = []
    place = namespace or DEFAULT_NAMESPACE
    texts = files.read(files_, recursive=recursive)
    pairs = _in_files(kinds, texts, namespace) if files_ else [(target, place) for target in kinds.targets(what, place)]
    for target, _ in pairs:
        _check(target, selector, everything, host)
    if dry_run != "none":
        ctx.exit(_dry_run(client, _users_first(pairs), selector, dry_run, ignore_not_found=ignore_not_found))
    for target, where in _users_first(pairs):
        if grace is not None:
            _shorten(client, target, where, selector, grace)
        deletions += _delete(client, target, where, _query(ctx, selector, cascade, host), refusals)
    if not deletions and not refusals:
        note("No resources found.")
    failures = [refusal for refusal in refusals if not (ignore_not_found and refusal.reason == "NotFound")]
    for error in failures:
        as_cli_error(error).show()
    if wait and (pending := [deletion for deletion in deletions if deletion.resource.kind != VOLUME]):
        _wait(client, pending, timeout)
    ctx.exit(1 if failures else 0)


def _grace_seconds(*, grace_period: int | None, now: bool, force: bool) -> int | None:
    """Return the grace period of the options; None: the sandbox's own."""
    if grace_period is not None and now:
        raise click.UsageError("--now and --grace-period exclude each other; give one")
    if force and grace_period:
        raise click.UsageError(f"--force kills at once; leave --grace-period={grace_period} or --force out")
    return 0 if force else 1 if now else grace_period


def _names_of(client: Client, target: Target, place: str, selector: str) -> Sequence[str]:
    """Return the names that a target stands for; missing names are kept."""
    if target.names:
        return target.names
    entries = client.get(target.resource.path(place), labelSelector=selector)["items"]
    return [entry["metadata"]["name"] for entry in entries]


def _dry_run(
    client: Client, pairs: Sequence[tuple[Target, str]], selector: str, how: str, *, ignore_not_found: bool
) -> int:
    """Print what would be deleted; return the exit code."""
    code = 0
    for target, place in pairs:
        for name in _names_of(client, target, place, selector):
            try:
                client.get(target.resource.path(place, name))
            except Refused as error:
                if not (ignore_not_found and error.reason == "NotFound"):
                    as_cli_error(error).show()
                    code = 1
            else:
                say(f"{target.resource.word(name)} deleted ({how} dry run)")
    return code


def _shorten(client: Client, target: Target, place: str, selector: str, seconds: int) -> None:
    """Set the grace period of the sandboxes to delete; other kinds have none."""
    if target.resource.kind != "Sandbox":
        return
    change = {"spec": {"lifecycle": {"shutdownGracePeriodSeconds": seconds}}}
    for name in _names_of(client, target, place, selector):
        try:
            path = target.resource.path(place, name)
            client.request("PATCH", path, json=change, content_type="application/merge-patch+json")
        except Refused as error:
            if error.reason not in ("NotFound", "Conflict"):  # it is gone, or is being deleted
                raise


def _query(ctx: click.Context, selector: str, cascade: str, host: str) -> Query:
    """Return the query; an unset --cascade does not change a deletion under way."""
    query = {name: value for name, value in (("labelSelector", selector), ("host", host)) if value}
    if ctx.get_parameter_source("cascade") is not click.core.ParameterSource.DEFAULT:
        query["propagationPolicy"] = cascade.capitalize()
    return query


def _check(target: Target, selector: str, everything: bool, host: str) -> None:
    target.resource.check_deletable(by_name=bool(target.names))
    if host and target.resource.kind != VOLUME:
        raise click.UsageError(f"--host names the host of a volume; {target.resource.plural} are found without it")
    if target.names and (everything or selector):
        raise click.UsageError("names can't be combined with --all or -l; leave one of them out")
    if not target.names and not everything and not selector:
        raise click.UsageError(f"name the {target.resource.plural} to delete, or add --all or -l")


def _users_first(pairs: Sequence[tuple[Target, str]]) -> Sequence[tuple[Target, str]]:
    """Sort for deletion: objects before those that they refer to."""
    if len({target.resource.kind for target, _ in pairs}) < 2:
        return pairs
    from controller.kinds.registry import discover

    order = discover().deletion_order
    return sorted(pairs, key=lambda pair: order.get(pair[0].resource.kind, 0))


def _in_files(kinds: Kinds, texts: Sequence[Mapping[str, str]], namespace: str | None) -> list[tuple[Target, str]]:
    """Return the objects that spec files describe."""
    from controller.documents.document import parse
    from controller.kinds.registry import discover

    pairs: list[tuple[Target, str]] = []
    problems: list[str] = []
    for source in texts:
        documents, wrong = parse(source["file"], source["text"], discover(), namespace=namespace)
        problems += map(str, wrong)
        pairs += [
            (Target(kinds.resource(document.kind.plural), (document.name,)), document.namespace)
            for document in documents
        ]
    if problems:
        raise CliError("nothing was deleted\n" + "\n".join(problems))
    return pairs


def _delete(client: Client, target: Target, place: str, query: Query, refusals: list[Refused]) -> list[_Deletion]:
    """Request the deletion of a target's objects, and return them; a refusal does not stop the others."""
    resource = target.resource
    objects: list[Object] = []
    for name in target.names or ("",):
        try:
            answer = client.request("DELETE", resource.path(place, name), params=query)
        except Refused as error:
            refusals.append(error)
        else:
            objects += [answer] if target.names else answer["items"]
    deletions: list[_Deletion] = []
    for entry in objects:
        metadata = entry["metadata"]
        say(f'{resource.singular}.paddock "{metadata["name"]}" deleted')
        deletions.append(_Deletion(resource, place, metadata["name"], metadata["uid"]))
    return deletions


def _wait(client: Client, deletions: Sequence[_Deletion], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    groups: dict[tuple[Resource, str], dict[str, str]] = {}
    for deletion in deletions:
        groups.setdefault((deletion.resource, deletion.namespace), {})[deletion.name] = deletion.uid
    pending = {(deletion.resource, deletion.namespace, deletion.name): "" for deletion in deletions}
    with waiting_for(_label(pending)) as waiting:

        def is_gone(resource: Resource, place: str, uids: Mapping[str, str], name: str, current: Object | None) -> bool:
            if current is not None and current["metadata"]["uid"] == uids[name]:
                pending[resource, place, name] = Gone().why_not(current).message
                return False
            pending.pop((resource, place, name), None)
            waiting.label(_label(pending))
            return True

        for (resource, place), uids in groups.items():
            until(client, resource, place, names=uids, done=partial(is_gone, resource, place, uids), deadline=deadline)
    if pending:
        names = ", ".join(f"{resource.word(name)} ({why})" for (resource, _, name), why in pending.items())
        raise CliError(f"timed out after {timeout:g} s; not deleted yet: {names}; see `paddock describe`")


def _label(pending: Collection[tuple[Resource, str, str]]) -> str:
    names = [resource.word(name) for resource, _, name in pending]
    remark = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{len(names)} deletion(s): {', '.join(names[:3])}{remark}"
