"""Files of a sandbox. A relative path starts in the folder where its commands run; `~` is the home of its user.

Copies are named as by `docker cp`. Data from a sandbox is untrusted: it is unpacked below one folder, never through a
symlink, up to a limit. Symlinks that may lead out of the copied tree are skipped.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock._archive.names import Unsafe
from paddock._archive.pack import Piece, Span, pack, read_out
from paddock._archive.tar import Reader, TarError
from paddock._archive.unpack import LimitExceeded, Rules, unpack
from paddock._client.errors import ClientError, Refused
from paddock._client.server import Server
from paddock._client.transfer import PIECE_BYTES, Answer, exchange

Progress = Callable[[int], None]
PULL_MAX_BYTES = 8 << 30
PULL_MAX_ENTRIES = 1_000_000
_RAISE = "copy less, or allow more with max_bytes and max_entries (cp: --max-size, --max-entries)"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileInfo:
    """Metadata of a file. `type` is file, folder, symlink or other; `mode` permission bits; `modified` Unix seconds."""

    name: str
    type: str
    size: int
    mode: int
    uid: int
    gid: int
    modified: float
    target: str = ""


class Files:
    """Files of one sandbox, with the permissions of its user. Every method may raise a ClientError."""

    def __init__(self, server: Server, sandbox_path: str) -> None:
        self._server, self._path = server, f"{sandbox_path}/files"

    def read(self, path: str) -> bytes:
        """Read a regular file."""
        with self.open(path) as answer:
            return b"".join(answer.pieces())

    @contextmanager
    def open(self, path: str) -> Iterator[Answer]:
        """Read a regular file in chunks: `for piece in answer.pieces()`."""
        with exchange(self._server, "GET", self._path, {"path": path}) as answer:
            yield answer

    def write(self, path: str, data: bytes | Iterable[bytes], *, mode: int | None = None) -> FileInfo:
        """Create or replace a regular file atomically. `mode` None: an existing file keeps its mode."""
        pieces = cut(data) if isinstance(data, bytes) else data
        query = {"path": path} if mode is None else {"path": path, "mode": f"{mode:03o}"}
        return _info(self._ask("PUT", "", query, pieces))

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        """Return metadata; `follow` a symlink at the end of the path. Refused (code 404) if nothing exists there."""
        return _info(self._ask("GET", "/stat", {"path": path, "follow": _flag(follow)}))

    def find(self, path: str, *, follow: bool = True) -> FileInfo | None:
        """Return metadata like `stat`, or None if nothing exists there."""
        try:
            return self.stat(path, follow=follow)
        except Refused as error:
            if error.has_cause("NotFound", "path"):  # the path, not the sandbox
                return None
            raise

    def entries(self, path: str = ".", *, limit: int = 1000) -> list[FileInfo]:
        """List a folder by name, at most `limit` entries (10,000 at most)."""
        return [_info(entry) for entry in self._ask("GET", "/list", {"path": path, "limit": str(limit)})["items"]]

    def mkdir(self, path: str, *, parents: bool = False) -> FileInfo:
        """Create a folder; `parents`: create missing parents, and accept an existing folder."""
        return _info(self._ask("POST", "/folder", {"path": path, "parents": _flag(parents)}))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a symlink or a folder; `recursive`: with its content."""
        self._ask("DELETE", "", {"path": path, "recursive": _flag(recursive)})

    @contextmanager
    def archive(self, path: str, *, top: str = ".", follow: bool = False) -> Iterator[Answer]:
        """Stream a file, symlink or tree as tar; `top` is its name in the archive (`.`: only the folder's content).

        Entries have permission bits and the owner 65534 (nobody); symlinks are unchanged.
        """
        query = {"path": path, "top": top, "follow": _flag(follow)}
        with exchange(self._server, "GET", f"{self._path}/archive", query) as answer:
            yield answer

    def unpack(self, path: str, stream: Iterable[Piece]) -> list[str]:
        """Unpack a tar stream below a folder of the sandbox; create it; return messages about skipped entries."""
        skipped = self._ask("PUT", "/archive", {"path": path}, read_out(stream))
        return _left_out(skipped["leftOut"], skipped["leftOutCount"])

    def push(
        self, source: str | Path, path: str, *, follow: bool = False, progress: Progress | None = None
    ) -> list[str]:
        """Copy a local file or folder into the sandbox, named as by `docker cp`; return messages about skips."""
        return _push(self, os.fspath(source), path, follow=follow, progress=progress)

    def pull(
        self,
        path: str,
        target: str | Path,
        *,
        follow: bool = False,
        progress: Progress | None = None,
        max_bytes: int = PULL_MAX_BYTES,
        max_entries: int = PULL_MAX_ENTRIES,
    ) -> list[str]:
        """Copy a file or folder of the sandbox to `target`, and nothing outside of it; return messages about skips.

        ClientError beyond `max_bytes` written to disk (holes of sparse files do not count) or `max_entries`; entries
        before it are kept.
        """
        limits = {"max_bytes": max_bytes, "max_entries": max_entries}
        return _pull(self, path, os.fspath(target), follow=follow, progress=progress, **limits)

    def _ask(self, method: str, at: str, query: dict[str, str], body: Iterable[bytes] | None = None) -> Any:
        with exchange(self._server, method, self._path + at, query, body) as answer:
            try:
                return json.loads(b"".join(answer.pieces()))
            except ValueError as error:
                raise ClientError("the server's response is not Paddock's; check --server") from error


def _info(entry: dict[str, Any]) -> FileInfo:
    fields = {key: entry[key] for key in FileInfo.__dataclass_fields__ if key in entry}
    return FileInfo(**{**fields, "mode": int(entry["mode"], 8)})


def _left_out(messages: list[str], count: int) -> list[str]:
    return messages if count <= len(messages) else [*messages, f"and {count - len(messages)} more"]


def cut(data: bytes) -> Iterator[bytes]:
    """Cut a body into pieces."""
    return (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _push(files: Files, source: str, path: str, *, follow: bool, progress: Progress | None) -> list[str]:
    """Implement Files.push."""
    folder, name, called = _source(source, follow=follow)
    try:
        fd = os.open(folder, _FOLDER)
    except OSError as error:
        raise ClientError(f"{folder}: {error.strerror}") from error
    try:
        into, top = _place(files, path, called, is_folder=_is_folder(fd, name, source))
        return files.unpack(into, _count_bytes(pack(fd, os.fsencode(name), os.fsencode(top)), progress, source))
    finally:
        os.close(fd)


def _pull(
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
    source = files.stat(path, follow=follow)
    content = folder_of_content(path)
    name = source.name if path.rstrip("/") == "~" else path.rstrip("/").rpartition("/")[2]
    if name == "..":
        raise ClientError(f"{path}: `..` is not a name; name the folder itself")
    with _target(target, "." if content else name, source, bool(content)) as (folder, top):
        archive_path = content or path.rstrip("/")
        with files.archive(archive_path, top=top, follow=follow) as answer:
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


def folder_of_content(path: str) -> str:
    """Return the folder, with a slash at its end, whose content the path stands for, as `/app/.`; "" for others."""
    is_content = not path.rstrip("/") or path == "." or path.endswith("/.")
    return (path.removesuffix(".") or "./") if is_content else ""


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
    existing = files.find(path)
    if existing is not None and existing.type == "folder":
        return path, name
    if existing is not None and is_folder:
        raise ClientError(f"{path}: not a folder in the sandbox; a folder can't replace a file")
    folder, slash, called = path.rpartition("/")
    if name == "." or called in ("", ".", ".."):
        return path, name  # its folders are created
    return folder or slash or ".", called


@contextmanager
def _target(target: str, name: str, source: FileInfo, contents: bool) -> Iterator[tuple[int, str]]:
    """Open the local folder to unpack into; yield it with the source's name there."""
    if os.path.isdir(target):
        folder, called = target, name
    elif os.path.lexists(target) and source.type == "folder":
        raise ClientError(f"{target}: not a folder; a folder can't replace a file")
    elif contents:
        folder, called = _make_folder(target), "."
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


def _make_folder(folder: str) -> str:
    try:
        os.mkdir(folder)
    except OSError as error:
        raise ClientError(f"{folder}: {error.strerror}") from error
    return folder


def _count_bytes(stream: Iterator[Piece], progress: Progress | None, source: str) -> Iterator[Piece]:
    try:
        for piece in stream:
            yield piece
            if progress is not None:
                progress(piece.size if isinstance(piece, Span) else len(piece))
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else source
        raise ClientError(f"{name}: {error.strerror}") from error
