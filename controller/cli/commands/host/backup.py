"""`paddock backup`."""

import os
from pathlib import Path
from typing import BinaryIO

import click

from controller.cli.calls.snapshots import SnapshotClient
from controller.cli.client import Client, connect
from controller.cli.errors import CliError
from controller.cli.text.output import note

_SHOWN = 5


@click.command("backup")
@click.argument("file", metavar="FILE")
@click.option("--with-snapshots", is_flag=True, help="Export all snapshots into the folder FILE.snapshots, too.")
@click.pass_context
def backup_(ctx: click.Context, file: str, with_snapshots: bool) -> None:
    """Write a backup of the store to FILE, while the daemon runs.

    FILE is written whole or not at all, readable by you alone: it holds specs, token hashes and the audit log.
    Containers, images, volumes, files in memory of suspended sandboxes and (without --with-snapshots) snapshots are not
    included; the latter are named. `paddock restore FILE` restores it; `paddock snapshot import` the snapshots.
    """
    path = Path(file)
    if path.exists():
        raise CliError(f"{file}: file exists; name a new one")
    partial_path = path.with_name(f".{path.name}.part")
    client = connect(ctx)
    try:
        with client.stream("backup", {}) as pieces, _new(partial_path) as opened:
            size = sum(opened.write(piece) for piece in pieces)
            opened.flush()
            os.fsync(opened.fileno())
        os.rename(partial_path, path)
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}; free some space, or name another file") from error
    finally:
        partial_path.unlink(missing_ok=True)
    note(f"{file} written ({size} bytes); left out: volumes, and what suspended sandboxes had in memory")
    _snapshots(client, path, export=with_snapshots)


def _snapshots(client: Client, path: Path, *, export: bool) -> None:
    """Export the captured snapshots of all namespaces into a folder beside the backup, or name them."""
    captured = [
        snapshot["metadata"]
        for snapshot in client.list("sandboxsnapshots")["items"]
        if any(each["type"] == "Captured" and each["status"] == "True" for each in snapshot["status"]["conditions"])
    ]
    if not captured:
        return
    names = ", ".join(f"{metadata['namespace']}/{metadata['name']}" for metadata in captured[:_SHOWN])
    more = f" and {len(captured) - _SHOWN} more" if len(captured) > _SHOWN else ""
    if not export:
        note(f"left out: {len(captured)} snapshots ({names}{more}); --with-snapshots exports them")
        return
    folder = path.with_name(f"{path.name}.snapshots")
    folder.mkdir(mode=0o700)
    for metadata in captured:
        snapshots = SnapshotClient(client, metadata["namespace"])
        with _new(folder / f"{metadata['namespace']}.{metadata['name']}.tar") as file:
            snapshots.export(metadata["name"], file.write)
    note(f"{folder} written ({len(captured)} snapshots)")


def _new(path: Path) -> BinaryIO:
    """Create a new file; another file or link in its place is removed first."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
