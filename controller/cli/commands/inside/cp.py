"""`paddock cp`."""

import itertools
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import click

from controller.cli.client import connect, sandbox_path
from controller.cli.errors import UsageProblem
from controller.cli.options import DEFAULT_NAMESPACE, SIZE, namespace_option, sandbox_name
from controller.cli.text.output import note
from controller.cli.text.progress import transferring
from paddock._client.files import PULL_MAX_BYTES, PULL_MAX_ENTRIES, Files, folder_of_content
from paddock._client.transfer import PIECE_BYTES

_GZIP, _GZIP_FORMAT = b"\x1f\x8b", 31  # its first bytes, and zlib's number of that format


@click.command("cp")
@click.argument("source", metavar="[NAME:]SOURCE")
@click.argument("target", metavar="[NAME:]TARGET")
@namespace_option
@click.option("-L", "--follow-link", is_flag=True, help="Follow SOURCE if it is a symlink.")
@click.option(
    "--max-size",
    type=SIZE,
    default=PULL_MAX_BYTES,
    show_default="8Gi",
    metavar="SIZE",
    help="From a sandbox: write at most so much to disk (holes of sparse files do not count).",
)
@click.option(
    "--max-entries",
    type=click.IntRange(min=1),
    default=PULL_MAX_ENTRIES,
    show_default=True,
    metavar="COUNT",
    help="From a sandbox: write at most so many files, folders and symlinks.",
)
@click.pass_context
def cp_(
    ctx: click.Context,
    source: str,
    target: str,
    namespace: str | None,
    follow_link: bool,
    max_size: int,
    max_entries: int,
) -> None:
    """Copy files and folders into or out of a sandbox.

    A relative path in a sandbox starts in the folder where its commands run; missing folders are created there. If
    TARGET is a folder, SOURCE is copied into it; else SOURCE gets the name TARGET. `SOURCE/.` copies its content.
    `-` is a tar archive on stdin (also with gzip) or stdout. Permissions and symlinks are kept; owners and the setuid,
    setgid and sticky bits are not: entries on stdout have the owner and group 65534 (nobody). Holes of sparse files
    stay holes; of a file with several names (hard links) each becomes a file.

    Nothing is ever written outside of TARGET. Symlinks that lead out of the copied tree are skipped and reported (exit
    code 1). An archive on stdout keeps them.

    \b
    paddock cp ./app quickstart:/workspace
    paddock cp quickstart:/workspace/report.html .
    tar -c src | paddock cp - quickstart:/workspace
    """
    source_place, target_place = _split(source), _split(target)
    if (source_place is None) == (target_place is None):
        raise UsageProblem(
            "exactly one side must be a sandbox; write it as NAME:PATH, as in `paddock cp ./app quickstart:/workspace`"
        )
    name, path = source_place or target_place or ("", "")
    files = Files(connect(ctx).server, sandbox_path(namespace or DEFAULT_NAMESPACE, sandbox_name(name)))
    if target_place:
        left_out = _into(files, source, path, follow_link)
    elif target == "-":
        left_out = _archive(files, path, follow_link)
    else:
        limits = {"max_bytes": max_size, "max_entries": max_entries}
        with transferring(path) as progress:
            left_out = files.pull(path, target, follow=follow_link, progress=progress, **limits)
    for entry in left_out:
        note(f"warning: {entry}")
    ctx.exit(1 if left_out else 0)


def _split(text: str) -> tuple[str, str] | None:
    """Split NAME:PATH; None for a local path, which may have a colon after a slash."""
    name, colon, path = text.partition(":")
    if not colon or not name or name.startswith((".", "/")) or "/" in name.removeprefix("sandbox/"):
        return None
    if not path:
        raise UsageProblem(f"`{text}` has no path; write one as {name}:/workspace")
    return name, path


def _into(files: Files, source: str, path: str, follow: bool) -> list[str]:
    if source == "-":
        with transferring("stdin") as progress:
            return files.unpack(path, _decompress(_read(partial(os.read, sys.stdin.fileno()), progress)))
    size = os.path.getsize(source) if os.path.isfile(source) else None
    with transferring(source, size) as progress:
        return files.push(source, path, follow=follow, progress=progress)


def _archive(files: Files, path: str, follow: bool) -> list[str]:
    if sys.stdout.isatty():
        raise UsageProblem("stdout is a terminal, which takes no archive; add `> FILE` or `| tar -x`")
    top = path.removesuffix("/.").rstrip("/").rpartition("/")[2] or "."
    content = folder_of_content(path)
    with files.archive(content or path, top="." if content else top, follow=follow) as answer:
        for piece in answer.pieces():
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return []


def _decompress(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces; those of gzip's members decompressed, if it is one. Raises UsageProblem for a damaged one."""
    first = b""
    while len(first) < len(_GZIP) and (piece := next(pieces, b"")):
        first += piece
    pieces = itertools.chain((first,) if first else (), pieces)
    if not first.startswith(_GZIP):
        yield from pieces
        return
    member = zlib.decompressobj(_GZIP_FORMAT)
    try:
        for piece in pieces:
            plain = b""
            while piece or len(plain) == PIECE_BYTES:  # a full one may have more behind it
                if plain := member.decompress(piece, PIECE_BYTES):
                    yield plain
                piece = member.unconsumed_tail
                if member.eof:
                    piece, member = member.unused_data.lstrip(b"\0"), zlib.decompressobj(_GZIP_FORMAT)
    except zlib.error as error:
        raise UsageProblem(f"stdin: a damaged gzip archive ({error}); write it again") from error


def _read(read: Callable[[int], bytes], progress: Callable[[int], None]) -> Iterator[bytes]:
    while piece := read(PIECE_BYTES):
        yield piece
        progress(len(piece))
