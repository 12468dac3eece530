"""Spec files given with -f: files, folders (their .yaml, .yml and .json files), and `-` for stdin."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from controller.cli.errors import CliError
from controller.documents.text_file import MAX_BYTES, decode
from controller.kinds.common.problem import Problem

_SUFFIXES = (".yaml", ".yml", ".json")


def read(names: Sequence[str], *, recursive: bool = False) -> list[dict[str, str]]:
    """Read the files in the form that the API takes. CliError lists everything that can't be read.

    `recursive`: include subfolders.
    """
    sources, problems = [], []
    for file, data in _bytes(names, recursive):
        text = decode(file, data)
        if isinstance(text, Problem):
            problems.append(str(text))
        else:
            sources.append({"file": file, "text": text})
    if problems:
        raise CliError("nothing was changed\n" + "\n".join(problems))
    return sources


def _command() -> str:
    """Return the command that reads, as it is typed: `paddock apply`."""
    ctx = click.get_current_context(silent=True)
    return f"paddock {ctx.info_name}" if ctx is not None else "paddock apply"


def _bytes(names: Sequence[str], recursive: bool) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if name == "-":
            yield "stdin", sys.stdin.buffer.read(MAX_BYTES + 1)
            continue
        if name.startswith(("http://", "https://")):
            raise CliError(
                f"{name}: files are read, not addresses; write `curl -fsSL {shlex.quote(name)} | {_command()} -f -`"
            )
        for path in _paths(Path(name), recursive):
            try:
                with path.open("rb") as file:
                    yield str(path), file.read(MAX_BYTES + 1)
            except OSError as error:
                raise CliError(f"{path}: {error.strerror}; name a file that you can read") from error


def _paths(path: Path, recursive: bool) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = path.rglob("*") if recursive else path.iterdir()
    paths = sorted(candidate for candidate in inside if candidate.suffix in _SUFFIXES and candidate.is_file())
    if not paths:
        hint = "name a file, or a folder that has some" + ("" if recursive else " (-R includes subfolders)")
        raise CliError(f"{path}: no {', '.join(_SUFFIXES)} file in this folder; {hint}")
    return paths
