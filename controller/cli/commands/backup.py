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
    """Write a copy of everything that is stored to FILE, while the daemon runs.

    FILE is written whole or not at all, for your user alone: it holds specs, the hashes of tokens and the audit log.
    Boxes, their files, volumes and images are no part of it. `paddock restore FILE` puts it back.
    """
    path = Path(file)
    if path.exists():
        raise CliError(f"{file} is there already; name a new file")
    part = path.with_name(f".{path.name}.part")
    client = connect(ctx)
    try:
        with client.stream("backup", {}) as pieces, _new(part) as opened:
            size = sum(opened.write(each) for each in pieces)
            opened.flush()
            os.fsync(opened.fileno())
        os.rename(part, path)
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}; free some space, or name another file") from error
    finally:
        part.unlink(missing_ok=True)
    note(f"{file} written ({size} bytes)")


def _new(path: Path) -> BinaryIO:
    """A new file, whoever may have put another, or a link, in its place (of a shared folder)."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
