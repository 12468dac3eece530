"""`paddock logs`."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from controller.cli.calls.logs import opened_log
from controller.cli.client import Client, connect, sandbox_path, segment
from controller.cli.errors import CliError, only_reads
from controller.cli.options import (
    DEFAULT_NAMESPACE,
    DURATION,
    namespace_option,
    raw_option,
    sandbox_name,
    selector_option,
)
from controller.cli.text.output import note

if TYPE_CHECKING:
    from controller.cli.text.terminal_filter import Output

_AT_ONCE = 50  # sandboxes whose logs are followed together
_POLL_SECONDS = 0.3  # between two looks at a sandbox whose log has ended


class LogsCommand(click.Command):
    """Command whose error for `-n 2` tells that -n is the namespace: it is the number of lines for Docker."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for at, word in enumerate(args):
            lines = word[2:] or "".join(args[at + 1 : at + 2])
            if word.startswith("-n") and lines.isdigit():
                raise click.UsageError(
                    f"-n {lines}: -n is the namespace; write `--tail {lines}` for the last lines, or "
                    f"`--namespace {lines}` for a namespace of that name",
                    ctx,
                )
        return super().parse_args(ctx, args)


class _Lines(click.ParamType[int | None]):
    """A number of lines; `all` and -1 are no bound, as for Docker and kubectl."""

    name = "lines"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if str(value) in ("all", "-1"):
            return None
        if not str(value).isdigit():
            self.fail(f"`{value}` is not a number of lines; write one such as 10, or `all`", param, ctx)
        return int(value)


@click.command("logs", cls=LogsCommand)
@click.argument("names", nargs=-1, metavar="NAME ...")
@namespace_option
@selector_option
@click.option("-f", "--follow", is_flag=True, help="Show new output as it is written.")
@click.option("--tail", type=_Lines(), metavar="LINES", help="Only the last lines.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only output newer than this: 30s, 10m, 2h.")
@click.option("--since-time", metavar="TIME", help="Only output newer than this: 2026-01-31T12:00:00Z.")
@click.option("-t", "--timestamps", is_flag=True, help="Prefix each line with its time.")
@click.option("--prefix", is_flag=True, help="Prefix each line with its sandbox, as for several sandboxes.")
@click.option("-p", "--previous", is_flag=True, help="Of the previous run.")
@click.option("--exec", "exec_id", metavar="ID", help="Of a command started with `exec --detach`.")
@click.option(
    "--egress", is_flag=True, help="Show the egress log instead: each request that its proxy allowed or refused."
)
@click.option("-c", "--container", hidden=True, expose_value=False, help="As kubectl's; a sandbox is one container.")
@click.option("--all-containers", "--details", is_flag=True, hidden=True, expose_value=False)
@raw_option
@click.pass_context
@only_reads
def logs_(
    ctx: click.Context,
    /,
    names: Sequence[str],
    namespace: str | None,
    selector: str,
    prefix: bool,
    exec_id: str | None,
    raw: bool,
    since_time: str | None,
    **options: Any,
) -> None:
    """Show the log of a sandbox's main process, or of several, each line with its sandbox in front.

    On a terminal, escape sequences are removed, except colours and moves within the line. --raw keeps all. A pipe gets
    every byte.

    \b
    paddock logs quickstart -f
    paddock logs web worker --tail 5
    paddock logs -l app=web --since 10m
    """
    from controller.cli.text.terminal_filter import Output

    if bool(names) == bool(selector):
        raise click.UsageError("name the sandboxes, or select them with -l")
    if since_time and options["since"] is not None:
        raise click.UsageError("--since and --since-time exclude each other; give one")
    query = {**options, "since_seconds": _seconds_since(since_time) if since_time else options["since"]}
    del query["since"]
    _check(exec_id, query, many=len(names) != 1)
    client, place = connect(ctx), namespace or DEFAULT_NAMESPACE
    plain_names = [sandbox_name(name) for name in names] or _select(client, place, selector)
    logs = [_Log(client, place, plain_name) for plain_name in plain_names]
    with Output(sys.stdout.buffer, raw=raw) as out:
        if exec_id is not None:
            with client.stream(f"{logs[0].path}/execs/{segment(exec_id)}/log", {}) as pieces:
                for piece in pieces:
                    out.write(piece)
        elif prefix or selector or len(logs) > 1:
            _show_all(logs, out, query)
        else:
            _show(logs[0], out.write, query)


def _check(exec_id: str | None, query: dict[str, Any], *, many: bool) -> None:
    """Raise UsageError for options that exclude each other."""
    if exec_id is not None and (many or any(value not in (None, False) for value in query.values())):
        raise click.UsageError("--exec shows the whole kept output of one command; leave the other options out")
    if query["egress"] and (query["follow"] or query["previous"] or query["timestamps"]):
        raise click.UsageError("--egress can only be combined with --tail and --since; leave the others out")


def _seconds_since(text: str) -> float:
    """Return the seconds since an RFC 3339 time."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"--since-time: `{text}` is not a time; write 2026-01-31T12:00:00Z") from None
    if at.tzinfo is None:
        raise click.BadParameter(f"--since-time: `{text}` has no time zone; add Z for UTC, or +02:00")
    return max(0.001, time.time() - at.timestamp())


def _select(client: Client, place: str, selector: str) -> list[str]:
    matches = client.get(f"namespaces/{segment(place)}/sandboxes", labelSelector=selector)["items"]
    if not matches:
        raise CliError(f"no sandboxes match `{selector}` in namespace {place}; check the selector")
    if len(matches) > _AT_ONCE:
        raise CliError(f"{len(matches)} sandboxes match, and {_AT_ONCE} logs can be shown at once; select fewer")
    return [match["metadata"]["name"] for match in matches]


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one sandbox."""

    client: Client
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Path of the sandbox."""
        return sandbox_path(self.namespace, self.name)


def _show(log: _Log, write: Callable[[bytes], object], query: dict[str, Any]) -> None:
    def warn(text: str) -> None:
        note(f"warning: {text}")

    with opened_log(log.client, log.path, **query, warn=warn) as pieces:
        for piece in pieces:
            write(piece)


def follow_to_their_ends(client: Client, place: str, names: Sequence[str], since_seconds: float) -> None:
    """Show what sandboxes write, line by line with their names in front, through restarts, until all have ended."""
    from controller.cli.text.terminal_filter import Output

    query = {"follow": True, "since_seconds": since_seconds}
    with Output(sys.stdout.buffer, raw=False) as out:
        _show_all([_Log(client, place, name) for name in names], out, query, through_restarts=True)


def _runs_again(log: _Log) -> bool:
    """Wait until a sandbox whose log has ended runs again; return False if it has ended, or is to be stopped."""
    from paddock._client.errors import ClientError, Refused

    while True:
        time.sleep(_POLL_SECONDS)
        try:
            current = log.client.get(log.path)
        except Refused as error:
            if error.reason == "NotFound":
                return False
            continue
        except ClientError:
            continue  # a daemon that is restarted, say
        conditions = {entry["type"]: entry["status"] for entry in current.get("status", {}).get("conditions", ())}
        if conditions.get("Finished") == "True" or current["spec"].get("runState", "Running") != "Running":
            return False
        if current.get("status", {}).get("phase") == "Running":
            return True


def _show_all(logs: Sequence[_Log], out: "Output", query: dict[str, Any], *, through_restarts: bool = False) -> None:
    """Show the logs line by line, with their sandbox in front: one after another, or together if followed."""
    from paddock._client.errors import ClientError

    writing, failed = threading.Lock(), list[str]()

    def show(log: _Log) -> None:
        remainder, front = b"", f"[{log.name}] ".encode()

        def write(piece: bytes) -> None:
            nonlocal remainder
            *lines, remainder = (remainder + piece).split(b"\n")
            if lines:
                with writing:
                    out.write(b"".join(front + line + b"\n" for line in lines))

        parameters = query
        while True:
            try:
                _show(log, write, parameters)
            except ClientError as error:
                if not through_restarts:
                    failed.append(f"{log.name}: {error.message}")
            end = time.monotonic()
            if remainder:
                write(b"\n")
            if not through_restarts or not _runs_again(log):
                return
            parameters = {**query, "since_seconds": time.monotonic() - end}

    if query["follow"]:
        _follow_all(logs, show)
    else:
        for log in logs:
            show(log)
    if failed:
        raise CliError("\n".join(failed))


def _follow_all(logs: Sequence[_Log], show: Callable[[_Log], None]) -> None:
    """Show these logs together until all of them end, or the output takes no more. Raises OSError."""
    endings: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()

    def follow(log: _Log) -> None:
        broken = None
        try:
            show(log)
        except OSError as error:
            broken = error
        finally:
            endings.put(broken)

    for log in logs:
        threading.Thread(target=follow, args=(log,), daemon=True).start()
    for _ in logs:
        if error := endings.get():
            raise error
