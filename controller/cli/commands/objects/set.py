"""`paddock set`: the most frequent changes, without a file."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from controller.cli.errors import CliError
from controller.cli.objects.patch import ObjectRef, change_line, dry_run_option, find_objects, with_version
from controller.cli.options import DEFAULT_NAMESPACE, Group, namespace_option, selector_option
from controller.cli.text.output import say

if TYPE_CHECKING:
    from controller.cli.client import Client

# From an object to the merge patch of its spec.
Change = Callable[[Mapping[str, Any]], dict[str, Any]]
_TRIES = 10  # while the status of an object changes
_LIMITS = ("cpu", "memory", "pids", "disk", "gpus")


@click.group("set", cls=Group)
def set_() -> None:
    """Set an image, limits, a command, variables or the run state of sandboxes and templates."""


def _run(
    ctx: click.Context, object_words: Sequence[str], options: Mapping[str, Any], what: str, change: Change
) -> None:
    """Read, patch and report each object; a concurrent change of its spec is refused."""
    from controller.cli.client import connect

    client, trial = connect(ctx), options["dry_run"] == "server"
    place = options["namespace"] or DEFAULT_NAMESPACE
    targets = find_objects(client, object_words, place, selector=options["selector"], everything=options["everything"])
    read = [(target, target.read(client)) for target in targets]
    patches = [change(before) for _, before in read]
    for (target, before), spec in zip(read, patches, strict=True):
        after = _patch(client, target, before, spec, dry_run=trial)
        say(change_line(target, f"{what} updated", before, after, dry_run=trial))


def _patch(
    client: "Client", ref: ObjectRef, before: Mapping[str, Any], spec: Mapping[str, Any], *, dry_run: bool
) -> dict[str, Any]:
    """Patch an object whose spec is as it was read; its status may have changed since."""
    from paddock._client.errors import Refused

    read, tries = before, _TRIES
    while True:
        tries -= 1
        try:
            return ref.patch(client, with_version({"spec": spec}, read), dry_run=dry_run)
        except Refused as error:
            if error.reason != "Conflict" or not tries:
                raise
            read = ref.read(client)
            if any(read["metadata"][name] != before["metadata"][name] for name in ("uid", "generation")):
                raise


def _options(command: Any) -> Any:
    everything = click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
    return namespace_option(selector_option(everything(dry_run_option(command))))


def _in_template(obj: Mapping[str, Any], template_patch: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a patch of the container's template: a template's spec, or a sandbox's own template."""
    if obj["kind"] == "SandboxTemplate":
        return dict(template_patch)
    if obj["kind"] != "Sandbox":
        raise CliError(f"a {obj['kind']} has no such field; name sandboxes or sandboxtemplates")
    if "template" not in obj["spec"]:
        name = obj["spec"].get("templateRef", {}).get("name", "")
        field, label = ", ".join(template_patch), f"sandbox/{obj['metadata']['name']}"
        raise CliError(f"{label} takes its {field} from the SandboxTemplate `{name}`; change sandboxtemplate/{name}")
    return {"template": dict(template_patch)}


def _split(arguments: Sequence[str], what: str) -> tuple[Sequence[str], str]:
    """Split off the last word."""
    if len(arguments) < 2:
        raise click.UsageError(f"write KIND/NAME {what}")
    return arguments[:-1], arguments[-1]


@set_.command("image")
@click.argument("what", nargs=-1, metavar="KIND/NAME ... IMAGE")
@_options
@click.pass_context
def image(ctx: click.Context, /, what: Sequence[str], **options: Any) -> None:
    """Set the image. A running container is stopped gracefully and recreated.

    \b
    paddock set image sandbox/quickstart paddock/python:2
    """
    object_words, name = _split(what, "IMAGE")
    name = name.rpartition("=")[2]  # kubectl's CONTAINER=IMAGE
    _run(ctx, object_words, options, "image", lambda obj: _in_template(obj, {"image": name}))


@set_.command("resources")
@click.argument("what", nargs=-1, metavar="KIND/NAME ...")
@click.option("--limits", metavar="cpu=1,memory=1Gi,pids=64", help="Upper bounds; cpu= (empty) removes one.")
@click.option("--cpu-shares", type=int, metavar="N", help="CPU weight when all processors are busy.")
@_options
@click.pass_context
def resources(
    ctx: click.Context, /, what: Sequence[str], limits: str | None, cpu_shares: int | None, **options: Any
) -> None:
    """Change limits in place, without a restart.

    \b
    paddock set resources sandbox/quickstart --limits=cpu=1,memory=1Gi,pids=64
    """
    resource_patch: dict[str, Any] = {"limits": _limits(limits)} if limits is not None else {}
    resource_patch |= {"cpuShares": cpu_shares} if cpu_shares is not None else {}
    if not resource_patch:
        raise click.UsageError("no change given; add --limits or --cpu-shares, such as --limits=cpu=1,memory=1Gi")
    _run(ctx, what, options, "resource requirements", lambda _obj: {"resources": resource_patch})


def _limits(text: str) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for assignment in text.split(","):
        name, equals, value = assignment.strip().partition("=")
        if not equals or name not in _LIMITS:
            raise click.UsageError(f"`{assignment}`: write NAME=VALUE, with a name of {', '.join(_LIMITS)}")
        number = name in ("pids", "gpus") and value.isdigit()
        limits[name] = (int(value) if number else value) if value else None
    return limits


@set_.command("command")
@click.argument("what", metavar="KIND/NAME")
@click.argument("command", nargs=-1, metavar="-- COMMAND [ARG ...]", type=click.UNPROCESSED)
@click.option("--default", "default", is_flag=True, help="Reset to the image's own command.")
@_options
@click.pass_context
def command_(ctx: click.Context, /, what: str, command: Sequence[str], default: bool, **options: Any) -> None:
    """Set the command. A running container is stopped gracefully and recreated.

    \b
    paddock set command sandbox/quickstart -- sleep infinity
    """
    if bool(command) == default:
        raise click.UsageError("no command given; write it after `--`, or add --default for the image's own")
    new_command = list(command) or None
    _run(ctx, [what], options, "command", lambda obj: _in_template(obj, {"command": new_command, "args": None}))


@set_.command("env")
@click.argument("what", nargs=-1, metavar="KIND/NAME ... NAME=VALUE|NAME- ...")
@_options
@click.pass_context
def env(ctx: click.Context, /, what: Sequence[str], **options: Any) -> None:
    """Set environment variables, or remove them (NAME-). Not for secrets: every reader of the spec sees them.

    \b
    paddock set env sandbox/quickstart LANG=C.UTF-8 DEBUG-
    """
    changes = [word for word in what if "=" in word or word.endswith("-")]
    if not changes:
        raise click.UsageError("no change given; write NAME=VALUE, or NAME- to remove it")
    object_words = [word for word in what if word not in changes]

    def change(obj: Mapping[str, Any]) -> dict[str, Any]:
        holder = obj["spec"] if obj["kind"] == "SandboxTemplate" else obj["spec"].get("template", {})
        return _in_template(obj, {"env": _environment(holder.get("env", ()), changes)})

    _run(ctx, object_words, options, "env", change)


def _environment(variables: Sequence[Mapping[str, str]], changes: Sequence[str]) -> list[dict[str, str]]:
    values_by_name = {variable["name"]: variable["value"] for variable in variables}
    for word in changes:
        name, equals, value = word.partition("=")
        if equals:
            values_by_name[name] = value
        else:
            values_by_name.pop(word.removesuffix("-"), None)
    return [{"name": name, "value": value} for name, value in values_by_name.items()]


@set_.command("run-state")
@click.argument("what", nargs=-1, metavar="KIND/NAME ... Running|Suspended|Paused|Hibernated")
@_options
@click.pass_context
def run_state(ctx: click.Context, /, what: Sequence[str], **options: Any) -> None:
    """Run, suspend (stop), pause (freeze) or hibernate (freeze, memory to swap) sandboxes.

    \b
    paddock set run-state sandbox/quickstart Suspended
    """
    object_words, state = _split(what, "Running|Suspended|Paused|Hibernated")
    _run(ctx, object_words, options, "run state", lambda _obj: {"runState": state})


@set_.command("on-suspend")
@click.argument("what", nargs=-1, metavar="KIND/NAME ... KeepFiles|Discard")
@_options
@click.pass_context
def on_suspend(ctx: click.Context, /, what: Sequence[str], **options: Any) -> None:
    """Keep or discard files in memory when sandboxes are suspended. Running ones run on.

    \b
    paddock set on-suspend sandboxes --all KeepFiles
    """
    object_words, value = _split(what, "KeepFiles|Discard")
    _run(ctx, object_words, options, "onSuspend", lambda _obj: {"lifecycle": {"onSuspend": value}})
