"""`paddock snapshot`: snapshots of sandboxes."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, Group, namespace_option
from controller.cli.text.output import note, say

if TYPE_CHECKING:
    from controller.cli.calls.snapshots import SnapshotClient

_PIECE_BYTES = 1 << 20


@click.group("snapshot", cls=Group)
def snapshot_() -> None:
    """Take snapshots of sandboxes; list, describe, delete, export and import them.

    A snapshot has the writable root layer, the folders in memory and the volumes of a sandbox at one instant.
    """


def snapshot_client(ctx: click.Context, namespace: str | None) -> "SnapshotClient":
    """Return the client of a namespace's snapshots."""
    from controller.cli.calls.snapshots import SnapshotClient
    from controller.cli.client import connect

    return SnapshotClient(connect(ctx), namespace or DEFAULT_NAMESPACE)


@snapshot_.command("create")
@click.argument("name")
@click.option("--from", "source", required=True, metavar="sandbox/NAME", help="The sandbox.")
@click.option("--ttl", type=DURATION, default=None, help="Delete it after that, once nothing begins from it.")
@click.option("--timeout", type=DURATION, default="180s", help="How long to wait for it.  [default: 180s]")
@namespace_option
@click.pass_context
def create(
    ctx: click.Context, name: str, source: str, ttl: float | None, timeout: float, namespace: str | None
) -> None:
    """Take a snapshot of a sandbox: running, paused, hibernated or suspended. A running one stands still meanwhile.

    \b
    paddock snapshot create before-upgrade --from sandbox/quickstart
    """
    from controller.cli.calls.snapshots import NotTaken

    client = snapshot_client(ctx, namespace)
    client.create(name, sandbox_of(source), ttl_seconds=None if ttl is None else int(ttl))
    try:
        taken = client.wait(name, timeout)
    except NotTaken:
        client.delete(name)
        raise
    status = taken["status"]
    say(f"sandboxsnapshot.paddock/{name} captured: {_size(status)}, frozen {status.get('frozenSeconds', 0):.2f} s")
    for omission in status.get("left", ()):
        note(f"left out: {omission['name']}: {omission['reason']}")


@snapshot_.command("list")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all namespaces.")
@click.pass_context
def list_(ctx: click.Context, namespace: str | None, everywhere: bool) -> None:
    """List snapshots: what they were taken of, their sizes, and what their sandboxes began from."""
    from controller.cli.commands.objects.get import get_

    ctx.invoke(get_, what=("sandboxsnapshots",), namespace=namespace, everywhere=everywhere)


@snapshot_.command("describe")
@click.argument("name")
@namespace_option
@click.pass_context
def describe(ctx: click.Context, name: str, namespace: str | None) -> None:
    """Show a snapshot with its conditions, what was left out, and its events."""
    from controller.cli.commands.objects.describe import describe_

    ctx.invoke(describe_, what=("sandboxsnapshot", name), namespace=namespace)


@snapshot_.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME ...")
@namespace_option
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], namespace: str | None) -> None:
    """Delete snapshots with their files. One that a sandbox begins from is refused: delete that first."""
    client = snapshot_client(ctx, namespace)
    for name in names:
        client.delete(name)
        say(f"sandboxsnapshot.paddock/{name} deleted")


@snapshot_.command("export")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--with-image", is_flag=True, help="With the sandbox's image, for a host that lacks it.")
@namespace_option
@click.pass_context
def export(ctx: click.Context, name: str, file: Path, with_image: bool, namespace: str | None) -> None:
    """Write a snapshot to a file: a tar with an OCI layout, for `snapshot import` on another host.

    It holds all that code in the sandbox wrote, keys included; nobody but you may read the file.
    """
    client, partial_file = snapshot_client(ctx, namespace), file.with_name(f".{file.name}.part")
    opened = os.open(partial_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(opened, "wb") as output:
            client.export(name, output.write, image=with_image)
        partial_file.replace(file)
    except BaseException:
        with suppress(OSError):
            partial_file.unlink()
        raise
    say(f"sandboxsnapshot.paddock/{name} exported to {file} ({_rounded(file.stat().st_size)})")


@snapshot_.command("import")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@namespace_option
@click.pass_context
def import_(ctx: click.Context, name: str, file: Path, namespace: str | None) -> None:
    """Create a snapshot from a file of `snapshot export`. A damaged or hostile one is refused.

    \b
    paddock snapshot import moved moved.tar
    """
    client = snapshot_client(ctx, namespace)
    with file.open("rb") as source:
        taken = client.import_(name, _pieces(source))
    say(f"sandboxsnapshot.paddock/{name} imported: {_size(taken['status'])}, of image {taken['status'].get('image')}")


def sandbox_of(word: str) -> str:
    """Return the name of `NAME` or `sandbox/NAME`. Raises CliError for another kind."""
    kind, slash, name = word.partition("/")
    if slash and kind not in ("sandbox", "sandboxes", "sb"):
        raise CliError(f"{word}: snapshots are of sandboxes; write sandbox/NAME")
    return name if slash else word


def _size(status: dict[str, Any]) -> str:
    return f"{_rounded(sum(status.get('sizeBytes', {}).values()))} in {status.get('files', 0)} files"


def _rounded(size_bytes: int) -> str:
    """Return a size in whole KiB, from 10 MiB on in whole MiB, rounded up."""
    from controller.kinds.common.quantity import format_bytes

    unit_bits = 10 if size_bytes < 10 << 20 else 20
    return format_bytes(-(-size_bytes >> unit_bits) << unit_bits)


def _pieces(source: Any) -> Iterator[bytes]:
    while piece := source.read(_PIECE_BYTES):
        yield piece
