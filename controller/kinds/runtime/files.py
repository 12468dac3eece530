"""File access in a box, as the rooms speak of it: what is asked, what is there, and why it could not be done."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from controller.kinds.observed.observed import Container

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


class FileWork(Protocol):
    """One file operation under way. Methods may block and raise FileError; `close`, from any thread, ends each.

    `send` a piece of input, then `end` it: else an operation changes nothing (but what it unpacked). `receive` a piece
    of output, b"" at its end. `result`: what it says, before its output (read, pack), and once it is done.

    `ends`, instead of those three: handles, the caller's to close, of the pipe that takes its input (each piece behind
    its length, four bytes, big-endian; the length 0 ends it), and of that which gives its output.
    """

    def send(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def receive(self) -> bytes: ...
    def ends(self) -> tuple[int, int]: ...
    def result(self) -> Mapping[str, Any]: ...
    def close(self) -> None: ...


class Files(Protocol):
    """A box's files, as its user sees them; see FileAsk."""

    def begin(self, container: Container, ask: FileAsk) -> FileWork:
        """Start an operation in a container that runs. Raises FileError."""
