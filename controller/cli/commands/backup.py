"""`paddock backup`."""

import os
from pathlib import Path
from typing import BinaryIO

import click

from controller.cli.client import connect
from controller.cli.errors import CliError
from controller.cli.output import note


@click.command("backup")
@click.argument("file", metavar="FILE")
@click.pass_context
def backup_(ctx: click.Context, file: str) -> None:
    """Write a backup of the store to FILE, while the daemon runs.

    FILE is written whole or not at all, readable by you alone: it holds specs, token hashes and the audit log.
    Containers, files, volumes and images are not included. `paddock restore FILE` restores it.
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
    note(f"{file} written ({size} bytes)")


def _new(path: Path) -> BinaryIO:
    """Create a new file; another file or link in its place is removed first."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
