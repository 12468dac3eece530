"""`paddock restart`."""

import time
from collections.abc import Sequence

import click

from controller.cli.client import Client, connect, segment
from controller.cli.errors import CliError
from controller.cli.objects.kinds import Resource
from controller.cli.objects.watch import Condition, Object, condition_of, until
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, sandbox_name, selector_option
from controller.cli.text.output import say
from paddock._client.errors import ClientError, Refused

_SANDBOXES = Resource("sandboxes", "sandbox", "Sandbox", namespaced=True)
_UNSAVED = Condition("FilesKept", "False")
_MERGE = "application/merge-patch+json"


@click.command("restart")
@click.argument("names", nargs=-1, metavar="NAME ...")
@namespace_option
@selector_option
@click.option("--timeout", type=DURATION, default="120s", help="How long to wait for all of them. [default: 120s]")
@click.pass_context
def restart_(ctx: click.Context, names: Sequence[str], namespace: str | None, selector: str, timeout: float) -> None:
    """Stop sandboxes and start them again, and wait until they are Ready.

    Files stay, also those in memory unless lifecycle.onSuspend is Discard. A suspended or paused sandbox runs
    afterwards.

    \b
    paddock restart quickstart
    paddock restart -l app=web
    """
    restart(connect(ctx), names, namespace or DEFAULT_NAMESPACE, selector, timeout)


def restart(client: Client, names: Sequence[str], place: str, selector: str, timeout: float) -> None:
    """Restart the sandboxes of these names, or of the selector."""
    name_words = [word for word in names if word not in ("sandbox", "sandboxes", "sb")]
    if bool(name_words) == bool(selector):
        raise click.UsageError("name the sandboxes to restart, or select them with -l")
    matches = client.get(_SANDBOXES.path(place), labelSelector=selector)["items"] if selector else []
    chosen = [sandbox_name(name_word) for name_word in name_words] or [match["metadata"]["name"] for match in matches]
    chosen = list(dict.fromkeys(chosen))
    if not chosen:
        raise CliError(f"no sandboxes to restart in namespace {place}; check the selector")
    for name in chosen:  # all exist and may run again, or nothing is stopped
        if is_finished(client.get(_path(place, name))):
            raise CliError(
                f"sandbox {name}: it has finished, and stays so; change its template, or delete and apply it"
            )
    deadline = time.monotonic() + timeout
    stopped: list[str] = []
    try:
        for name in chosen:
            stopped.append(name)  # before the answer: an interrupted request may have been carried out
            try:
                _set(client, place, name, "Suspended")
            except Refused:
                stopped.remove(name)
                raise
        _wait(client, place, chosen, condition=Condition("Suspended"), deadline=deadline, timeout=timeout, stops=True)
    finally:
        _start(client, place, stopped)
    _wait(client, place, chosen, condition=Condition("Ready"), deadline=deadline, timeout=timeout)
    for name in chosen:
        say(f"{_SANDBOXES.word(name)} restarted")


def is_finished(sandbox: Object) -> bool:
    """Return True if its main process has ended for good."""
    return Condition("Finished").reached(sandbox)


def _path(place: str, name: str) -> str:
    return f"namespaces/{segment(place)}/sandboxes/{segment(name)}"


def _set(client: Client, place: str, name: str, state: str) -> None:
    client.request("PATCH", _path(place, name), json={"spec": {"runState": state}}, content_type=_MERGE)


def _start(client: Client, place: str, names: Sequence[str]) -> None:
    """Start all that can be started; raise CliError with the others."""
    failed = []
    for name in names:
        try:
            _set(client, place, name, "Running")
        except ClientError as error:
            failed.append(f"{_SANDBOXES.word(name)} was not started again ({error.message}); restart it")
    if failed:
        raise CliError("\n".join(failed))


def _wait(
    client: Client,
    place: str,
    names: Sequence[str],
    condition: Condition,
    deadline: float,
    timeout: float,
    *,
    stops: bool = False,
) -> None:
    """Wait for all of them. `stops`: one whose files can't be saved is not stopped, and ends the wait."""

    def done(name: str, obj: Object | None) -> bool:
        files = condition_of(obj, _UNSAVED.name) if stops and obj is not None and _UNSAVED.reached(obj) else None
        if files is not None and files["reason"] in ("TooLarge", "NotSaved"):
            raise CliError(f"{_SANDBOXES.word(name)} is not restarted: {files['message']}")
        return condition.reached(obj)

    if late := until(client, _SANDBOXES, place, names=names, done=done, deadline=deadline):
        raise CliError(f"not {condition} within {timeout:g} s: {', '.join(late)}; see `paddock why NAME`")
