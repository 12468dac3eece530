"""Copies between this machine and a sandbox, with the naming rules of `docker cp`.

Data from a sandbox is untrusted: it is unpacked below one folder, never through a symlink, up to a limit. Symlinks
that may lead out of the copied tree are skipped, so that no link reaches other files of the target.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from controller.archive.names import Unsafe
from controller.archive.pack import Piece, Span, pack
from controller.archive.tar import Reader, TarError
from controller.archive.unpack import LimitExceeded, Rules, unpack
from controller.client.errors import ClientError
from controller.client.files import FileInfo, Files, Progress, _left_out

_RAISE = "copy less, or allow more with max_bytes and max_entries (cp: --max-size, --max-entries)"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def push(files: Files, source: str, path: str, *, follow: bool, progress: Progress | None) -> list[str]:
    """Implement Files.push."""
    folder, name, called = _source(source, follow=follow)
    try:
        fd = os.open(folder, _FOLDER)
    except OSError as error:
        raise ClientError(f"{folder}: {error.strerror}") from error
    try:
        into, top = _place(files, path, called, is_folder=_is_folder(fd, name, source))
        return files.unpack(into, _counted(pack(fd, os.fsencode(name), os.fsencode(top)), progress, source))
    finally:
        os.close(fd)


def pull(
    files: Files,
    path: str,
    target: str,
    *,
    follow: bool,
    progress: Progress | None,
    max_bytes: int,
    max_entries: int,
) -> list[str]:
    """Implement Files.pull."""
    found = files.stat(path, follow=follow)
    contents = path.rstrip("/") == "" or path.endswith("/.")
    name = path.rstrip("/").rpartition("/")[2]
    if name == "..":
        raise ClientError(f"{path}: `..` is not a name; name the folder itself")
    with _target(target, "." if contents else name, found, contents) as (folder, top):
        asked = path.removesuffix(".") if contents else path.rstrip("/")
        with files.archive(asked, top=top, follow=follow) as answer:
            # Only the copied tree below the target folder is the sandbox's: links stay within it.
            below = 0 if top == "." else 1
            rules = Rules(below, max_bytes, max_entries, progress or (lambda _count: None))
            try:
                done = unpack(Reader(answer.read), folder, rules)
            except (Unsafe, TarError) as error:
                raise ClientError(f"{path}: {error}") from error
            except LimitExceeded as error:
                raise ClientError(f"{path}: {error}; entries before it are kept; {_RAISE}") from error
            except OSError as error:
                raise ClientError(f"{error.filename or target}: {error.strerror}") from error
    return _left_out(done.left_out, done.left_out_count)


def _source(source: str, *, follow: bool) -> tuple[str, str, str]:
    """Return the source's folder, its name there and its name in the copy; `.`: the content of the folder."""
    if os.path.basename(source) in (".", "..") or not source.strip("/"):
        return source, ".", "."
    plain = source.rstrip("/")
    folder, name = os.path.split(os.path.realpath(plain) if follow else plain)
    return folder or ".", name, os.path.basename(plain)


def _is_folder(fd: int, name: str, source: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except OSError as error:
        raise ClientError(f"{source}: {error.strerror}") from error


def _place(files: Files, path: str, name: str, *, is_folder: bool) -> tuple[str, str]:
    """Return the folder in the sandbox to unpack into, and the source's name there."""
    there = files.find(path)
    if there is not None and there.type == "folder":
        return path, name
    if there is not None and is_folder:
        raise ClientError(f"{path}: not a folder in the sandbox; a folder can't replace a file")
    if name == ".":
        files.mkdir(path)
        return path, "."
    if path.endswith("/"):
        raise ClientError(f"{path}: no such folder in the sandbox; create it, or leave the last `/` out")
    folder, _, called = path.rpartition("/")
    if called in (".", ".."):
        raise ClientError(f"{path}: no such folder in the sandbox; create it")
    return folder or "/", called


@contextmanager
def _target(target: str, name: str, found: FileInfo, contents: bool) -> Iterator[tuple[int, str]]:
    """Open the local folder to unpack into; yield it with the source's name there."""
    if os.path.isdir(target):
        folder, called = target, name
    elif os.path.lexists(target) and found.type == "folder":
        raise ClientError(f"{target}: not a folder; a folder can't replace a file")
    elif contents:
        folder, called = _made(target), "."
    else:
        folder, called = os.path.split(target)
        if not called:
            raise ClientError(f"{target}: no such folder; create it, or leave the last `/` out")
    try:
        fd = os.open(folder or ".", _FOLDER)
    except OSError as error:
        raise ClientError(f"{folder}: {error.strerror}") from error
    try:
        yield fd, called
    finally:
        os.close(fd)


def _made(folder: str) -> str:
    try:
        os.mkdir(folder)
    except OSError as error:
        raise ClientError(f"{folder}: {error.strerror}") from error
    return folder


def _counted(stream: Iterator[Piece], progress: Progress | None, source: str) -> Iterator[Piece]:
    try:
        for piece in stream:
            yield piece
            if progress is not None:
                progress(piece.size if isinstance(piece, Span) else len(piece))
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else source
        raise ClientError(f"{name}: {error.strerror}") from error
