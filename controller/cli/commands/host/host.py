"""`paddock host`: list hosts, cordon or drain one and open it again, and remove one that is gone."""

import time
from collections.abc import Callable

import click

from controller.cli.client import Client, connect, segment
from controller.cli.commands.host.host_join import join_
from controller.cli.errors import CliError
from controller.cli.objects.kinds import Resource
from controller.cli.objects.patch import change_line, dry_run_option, find_one, with_version
from controller.cli.objects.watch import Object, until
from controller.cli.options import DURATION, Group
from controller.cli.text.output import columns, say, say_table
from controller.cli.text.progress import waiting_for

_HOSTS = Resource("hosts", "host", "Host", namespaced=False, watched=False)
_EMPTY = "drained"
_LISTED = ("NAME", "STATUS", "SANDBOXES", "CPU", "MEMORY", "ENGINE", "VERSION", "ADDRESS", "LAST SEEN")


@click.group("host", cls=Group)
def host_() -> None:
    """List hosts, cordon or drain one and open it again, and remove one that is gone for good.

    \b
    paddock host list
    paddock host cordon host
    paddock host drain host
    paddock host uncordon host
    paddock host join b --address 10.0.0.2:9466
    """


@host_.command("list")
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List the hosts of this daemon's store."""
    page = connect(ctx).get("hosts", table=True)
    titles = [str(column["name"]) for column in page["columnDefinitions"]]
    shown_titles = [title for title in _LISTED if title in titles]
    rows = ([str(row["cells"][titles.index(title)]) for title in shown_titles] for row in page["rows"])
    say_table(columns([shown_titles, *rows]))


@host_.command("remove")
@click.argument("name")
@click.pass_context
def remove_(ctx: click.Context, name: str) -> None:
    """Remove a host that is gone for good, whose daemon is stopped and to which nothing is bound.

    Sandboxes and pools of it that are being deleted are released: nobody else can.
    """
    connect(ctx).request("DELETE", f"hosts/{segment(name)}")
    say(f"host.paddock/{name} removed")


@host_.command("cordon")
@click.argument("name")
@dry_run_option
@click.pass_context
def cordon_(ctx: click.Context, name: str, dry_run: str) -> None:
    """Start nothing new on a host. What runs goes on, and is restarted as its spec says."""
    _change(ctx, name, "cordoned", {"schedulable": False}, trial=dry_run == "server")


@host_.command("drain")
@click.argument("name")
@dry_run_option
@click.option("--wait", is_flag=True, help="Wait until no sandbox is left on it.")
@click.option("--timeout", type=DURATION, default="120s", help="With --wait: how long to wait. [default: 120s]")
@click.pass_context
def drain_(ctx: click.Context, name: str, dry_run: str, wait: bool, timeout: float) -> None:
    """Empty a host for maintenance: nothing new starts on it, and its warm sandboxes are removed.

    Other sandboxes run on until you stop or delete them; `paddock host list`, too, shows how many are left. Undo it
    with `paddock host uncordon`.
    """
    if wait and dry_run == "server":
        raise click.UsageError("--wait needs what a dry run does not write; leave --dry-run out")
    after = _change(ctx, name, _drain_text, {"schedulable": False, "drained": True}, trial=dry_run == "server")
    if wait and _drain_text(after) != _EMPTY:
        _wait_until_empty(connect(ctx), name, timeout)


def _drain_text(host: Object) -> str:
    sandbox_count = host.get("status", {}).get("sandboxes")
    if sandbox_count == 0:
        return _EMPTY
    return (
        f"draining; {'?' if sandbox_count is None else sandbox_count} sandbox{'' if sandbox_count == 1 else 'es'} left"
    )


def _wait_until_empty(client: Client, name: str, timeout: float) -> None:
    """Wait until no sandbox is left on a host. CliError when some still are."""
    last = ""

    def empty(_name: str, host: Object | None) -> bool:
        nonlocal last
        last = _drain_text(host or {})
        waiting.report(f"host {name}", last, last)
        return host is not None and last == _EMPTY

    with waiting_for(f"host {name}") as waiting:
        late = until(client, _HOSTS, "", names=[name], done=empty, deadline=time.monotonic() + timeout)
    if late:
        raise CliError(f"host {name}: {last}, after {timeout:g} s; stop or delete them (`paddock get sandboxes -A`)")
    say(f"{_HOSTS.word(name)} {_EMPTY}")


@host_.command("release")
@click.argument("name")
@dry_run_option
@click.pass_context
def release_(ctx: click.Context, name: str, dry_run: str) -> None:
    """Say that a host is off for good: its sandboxes are started on other hosts, where a scheduler chooses those.

    Be sure that the machine is off, or cut off: what runs on it is not stopped by this. Nothing is done while its
    daemon is there, and what names it by `host:` waits for it. If it comes back, it removes its old copies.
    """
    _change(ctx, name, "released", {"schedulable": False, "outOfService": True}, trial=dry_run == "server")


@host_.command("uncordon")
@click.argument("name")
@dry_run_option
@click.pass_context
def uncordon_(ctx: click.Context, name: str, dry_run: str) -> None:
    """Let sandboxes start on a host again that was cordoned, drained or released; those that waited for it do."""
    _change(
        ctx, name, "uncordoned", {"schedulable": True, "drained": None, "outOfService": None}, trial=dry_run == "server"
    )


host_.add_command(join_)


def _change(
    ctx: click.Context,
    name: str,
    what: str | Callable[[Object], str],
    spec: dict[str, bool | None],
    *,
    trial: bool,
) -> Object:
    """Change a host and say so; return it. WHAT may depend on the host as it is then."""
    client = connect(ctx)
    host = find_one(client, [f"host/{name}"], "")
    before = host.read(client)
    after = host.patch(client, with_version({"spec": spec}, before), dry_run=trial)
    done = what if isinstance(what, str) else what(after)
    say(change_line(host, done, before, after, dry_run=trial))
    return after
