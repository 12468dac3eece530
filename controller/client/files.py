"""Files of a sandbox. Paths in the sandbox are absolute; a relative one starts at `/`."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.archive.pack import Piece, read_out
from controller.client.errors import ClientError, Refused
from controller.client.server import Server
from controller.client.transfer import PIECE_BYTES, Answer, exchange

Progress = Callable[[int], None]
PULL_MAX_BYTES = 8 << 30
PULL_MAX_ENTRIES = 1_000_000


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
        pieces = _cut(data) if isinstance(data, bytes) else data
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

    def entries(self, path: str, *, limit: int = 1000) -> list[FileInfo]:
        """List a folder by name, at most `limit` entries (10,000 at most)."""
        return [_info(each) for each in self._ask("GET", "/list", {"path": path, "limit": str(limit)})["items"]]

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
        """Unpack a tar stream below a folder of the sandbox; return messages about skipped entries."""
        skipped = self._ask("PUT", "/archive", {"path": path}, read_out(stream))
        return _left_out(skipped["leftOut"], skipped["leftOutCount"])

    def push(
        self, source: str | Path, path: str, *, follow: bool = False, progress: Progress | None = None
    ) -> list[str]:
        """Copy a local file or folder into the sandbox, named as by `docker cp`; return messages about skips."""
        from controller.client.copy import push

        return push(self, os.fspath(source), path, follow=follow, progress=progress)

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
        from controller.client.copy import pull

        limits = {"max_bytes": max_bytes, "max_entries": max_entries}
        return pull(self, path, os.fspath(target), follow=follow, progress=progress, **limits)

    def _ask(self, method: str, at: str, query: dict[str, str], body: Iterable[bytes] | None = None) -> Any:
        with exchange(self._server, method, self._path + at, query, body) as answer:
            try:
                return json.loads(b"".join(answer.pieces()))
            except ValueError as error:
                raise ClientError("the server's response is not Paddock's; check --server") from error


def _info(found: dict[str, Any]) -> FileInfo:
    known = {key: found[key] for key in FileInfo.__dataclass_fields__ if key in found}
    return FileInfo(**{**known, "mode": int(found["mode"], 8)})


def _left_out(messages: list[str], count: int) -> list[str]:
    return messages if count <= len(messages) else [*messages, f"and {count - len(messages)} more"]


def _cut(data: bytes) -> Iterator[bytes]:
    return (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))


def _flag(value: bool) -> str:
    return "true" if value else "false"
