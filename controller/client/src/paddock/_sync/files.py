# Generated from _async/files.py by `python -m tests.sdk.unasync`: change that one.
"""Files of a sandbox."""

import os
from collections.abc import Sequence
from pathlib import Path

from paddock._client.errors import NotFound
from paddock._client.files import FileInfo, Progress
from paddock._client.files import Files as RemoteFiles
from paddock._client.transfer import not_text
from paddock._transport.blocking import Transport

Messages = Sequence[str]
MAX_BYTES = 1 << 28  # of a file that is read into memory, unless more is asked for


class Files:
    """Files of one sandbox, with the permissions of its user.

    Relative paths start in the folder where `run` runs, /workspace in Paddock's images; `~` is the user's home.

    sandbox.files.write("src/hello.txt", "hello")
    assert sandbox.files.read("src/hello.txt") == "hello"
    sandbox.files.upload("project", "/workspace")
    sandbox.files.download("/workspace/project/out", "results")
    """

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport, self._path = transport, f"{sandbox_path}/files"
        self._blocking = RemoteFiles(transport.server, sandbox_path)

    def read(self, path: str, *, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = MAX_BYTES) -> str:
        """Read a text file, into memory. Raises ClientError if it is over `max_bytes`, or no text of `encoding`."""
        data = self.read_bytes(path, max_bytes=max_bytes)
        try:
            return data.decode(encoding, errors)
        except UnicodeDecodeError as error:
            raise not_text(path, error) from error

    def read_bytes(self, path: str, *, max_bytes: int = MAX_BYTES) -> bytes:
        """Read a file, into memory. Raises ClientError if it is over `max_bytes`: a sparse one takes no room there."""
        return self._transport.download(self._path, {"path": path}, max_bytes=max_bytes)

    def write(self, path: str, data: str | bytes, *, mode: int | None = None, encoding: str = "utf-8") -> None:
        """Create or replace a file atomically, and missing folders. `mode` None: an existing file keeps its mode."""
        raw = data.encode(encoding) if isinstance(data, str) else data
        query = {"path": path} if mode is None else {"path": path, "mode": f"{mode:03o}"}
        self._transport.upload(self._path, query, raw)

    def list(self, path: str = ".", *, limit: int = 1000) -> list[FileInfo]:
        """List a folder by name, that where `run` runs without a path; at most `limit` entries (10,000 at most)."""
        return self._transport.call(self._blocking.entries, path, limit=limit)

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        """Return metadata; `follow` a symlink at the end of the path. Raises NotFound."""
        return self._transport.call(self._blocking.stat, path, follow=follow)

    def exists(self, path: str) -> bool:
        """Tell if something exists at the path. Raises NotFound if the sandbox does not exist."""
        try:
            self.stat(path)
        except NotFound as error:
            if error.has_cause("NotFound", "path"):  # the path, not the sandbox
                return False
            raise
        return True

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        """Create a folder; `parents`: create missing parents, and accept an existing folder."""
        self._transport.call(self._blocking.mkdir, path, parents=parents)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a symlink or a folder; `recursive`: with its content."""
        self._transport.call(self._blocking.remove, path, recursive=recursive)

    def upload(
        self, source: str | Path, path: str, *, follow: bool = False, progress: Progress | None = None
    ) -> Messages:
        """Copy a local file or tree into the sandbox, named as by `docker cp`; return messages about skipped entries.

        Into an existing folder it is copied under its own name; `source/.` copies the content of a folder.
        """
        return self._transport.call(self._blocking.push, os.fspath(source), path, follow=follow, progress=progress)

    def download(
        self, path: str, target: str | Path, *, follow: bool = False, progress: Progress | None = None
    ) -> Messages:
        """Copy a file or tree of the sandbox to `target`; return messages about skipped entries.

        A hostile sandbox writes nothing outside of the target.
        """
        return self._transport.call(self._blocking.pull, path, os.fspath(target), follow=follow, progress=progress)
