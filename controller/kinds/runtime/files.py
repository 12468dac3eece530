"""File operations in a sandbox: requests, entries and errors."""

from dataclasses import dataclass
from typing import Literal

Operation = Literal["stat", "list", "mkdir", "remove", "read", "write", "move", "pack", "unpack", "login", "sftp"]
# Operations that send data in, and read-only ones.
TAKES = frozenset[Operation](("write", "unpack"))
READ_OPERATIONS = frozenset[Operation](("stat", "list", "read", "pack", "login"))


@dataclass(frozen=True, slots=True)
class FileRequest:
    """One operation on a path in a sandbox; a relative path starts where its commands run, `~` is its user's home.

    `follow`: follow a symlink at the end of the path (stat, pack). `recursive`: with all contents (remove). `parents`:
    with missing parent folders (mkdir, write, move, unpack). `mode`: permission bits (write, mkdir); None keeps a
    file's. `top`: the first name in the archive (pack). `limit`: maximum of entries (list). `depth`: levels of folders
    (list): below the first, names are relative paths. `target`: the new path (move). `max_bytes`: maximum of a
    transfer.
    """

    op: Operation
    path: str
    follow: bool = True
    recursive: bool = False
    parents: bool = False
    mode: int | None = None
    top: str = "."
    limit: int = 1000
    max_bytes: int = 0
    depth: int = 1
    target: str = ""


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
