"""File operations in a sandbox: requests, entries and errors."""

from dataclasses import dataclass
from typing import Literal

Operation = Literal["stat", "list", "mkdir", "remove", "read", "write", "move", "pack", "unpack", "login", "sftp"]
# Operations that send data in, and read-only ones.
TAKES = frozenset[Operation](("write", "unpack"))
READ_OPERATIONS = frozenset[Operation](("stat", "list", "read", "pack", "login"))


@dataclass(frozen=True, slots=True)
class FileRequest:
    """One operation on a path in a sandbox."""

    op: Operation
    """Operation, such as stat or write."""
    path: str
    """Path in the sandbox. A relative one starts where its commands run; `~` is its user's home."""
    follow: bool = True
    """Follow a symlink at the end of the path (stat, pack)."""
    recursive: bool = False
    """With all contents (remove)."""
    parents: bool = False
    """Create missing parent folders (mkdir, write, move, unpack)."""
    mode: int | None = None
    """Permission bits (write, mkdir); None keeps a file's."""
    top: str = "."
    """First name in the archive (pack)."""
    limit: int = 1000
    """Maximum of entries (list)."""
    max_bytes: int = 0
    """Maximum of a transfer."""
    depth: int = 1
    """Levels of folders (list): below the first, names are relative paths."""
    target: str = ""
    """New path (move)."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file, folder or symlink in a sandbox. `mode` is octal digits, `modified` Unix seconds, `target` a link's."""

    name: str
    type: str
    size: int
    mode: str
    uid: int
    gid: int
    modified: float
    target: str = ""


class FileError(Exception):
    """A failed file operation. `kind` is a word for programs, the message is for people.

    NotFound Exists NotAFolder IsAFolder NotAFile NotEmpty BadPath BadArchive Unsafe Denied ReadOnly NoSpace Busy
    Changed TooLarge CutOff NotRunning Failed
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
