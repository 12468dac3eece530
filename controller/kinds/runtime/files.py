"""File access in a box, as the rooms speak of it: what is asked, what is there, and why it could not be done."""

from dataclasses import dataclass
from typing import Literal

Operation = Literal["stat", "list", "mkdir", "remove", "read", "write", "pack", "unpack"]
# What sends data in, and what only looks.
TAKES = frozenset[Operation](("write", "unpack"))
LOOKS = frozenset[Operation](("stat", "list", "read", "pack"))


@dataclass(frozen=True, slots=True)
class FileAsk:
    """One operation on a path in a box; a relative path is taken from `/`.

    `follow`: a symlink that the path ends in is followed (stat, pack). `recursive`: with all that is in it (remove).
    `parents`: with the folders above it (mkdir). `mode`: permission bits (write, mkdir); None keeps what a file has.
    `top`: the first name in the archive (pack). `limit`: entries at most (list). `max_bytes`: in one transfer.
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


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file, folder or symlink in a box. `mode` is octal digits, `modified` Unix seconds, `target` a link's."""

    name: str
    type: str
    size: int
    mode: str
    uid: int
    gid: int
    modified: float
    target: str = ""


class FileError(Exception):
    """What was asked of a box's files can't be done. `kind` is a word for programs, the message is for people.

    NotFound Exists NotAFolder IsAFolder NotAFile NotEmpty BadPath BadArchive Unsafe Denied ReadOnly NoSpace Busy
    Changed TooLarge CutOff NotRunning Failed
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
