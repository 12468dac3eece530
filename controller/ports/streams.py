"""Ports into a sandbox: logs, commands, files, TCP ports."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import Container
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.kinds.runtime.files import FileAsk


class StreamError(Exception):
    """A log or exec request that cannot be served, in words for the user."""


class ChunkStream(Iterator[Chunk], Protocol):
    """An open stream. Closing it, from any thread, frees the connection; so does reading it to its end."""

    def close(self) -> None: ...


@runtime_checkable
class ExecStream(ChunkStream, Protocol):
    """The stream of a command that runs. Both methods may block and raise StreamError."""

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal a size."""

    def signal(self, name: str) -> None:
        """Send a signal, such as `INT`, to its process group."""


class Streams(Protocol):
    """Into the box. Errors are `StreamError`s, which say what to do."""

    def logs(
        self,
        container_id: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        until: float | None = None,
        timestamps: bool = False,
    ) -> ChunkStream:
        """Log output; closing the iterator frees the connection. `tail` counts before `until` cuts."""

    def inspect(self, container_id: str) -> Mapping[str, Any]:
        """A container of ours in the engine's own words."""

    def exec(
        self,
        container_id: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        user: str = "",
        stdin: Iterable[bytes] | None = None,
        timeout_seconds: float | None = None,
        tty: bool = False,
        escaped: Callable[[str], None] | None = None,
    ) -> ExecStream:
        """Run a command; the last chunk is `exit`. With `tty` all its output is `stdout`.

        Past `timeout_seconds` all its processes are killed (exit 124). `escaped` is called, from any thread, if
        processes are left then that may be its own, though nothing tells.
        """
        ...


class Ports(Protocol):
    """A box's ports, from within its own network."""

    def connect(self, container: Container, port: int) -> socket.socket:
        """A TCP connection to that port of the box's 127.0.0.1. May block for some seconds. Raises StreamError."""


class FileWork(Protocol):
    """One file operation under way. Methods may block and raise FileError; `close`, from any thread, ends each.

    `send` a piece of input, then `end` it: else an operation changes nothing (but what it unpacked). `receive` a piece
    of output, b"" at its end. `result`: what it says, before its output (read, pack), and once it is done.
    """

    def send(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def receive(self) -> bytes: ...
    def result(self) -> Mapping[str, Any]: ...
    def close(self) -> None: ...


class Files(Protocol):
    """A box's files, as its user sees them; see FileAsk."""

    def begin(self, container: Container, ask: FileAsk) -> FileWork:
        """Start an operation in a container that runs. Raises FileError."""


@runtime_checkable
class Leavable(Protocol):
    """The stream of a command that can be left to itself."""

    @property
    def ref(self) -> ExecRef | None:
        """What it is found again by; None where it can't be."""
        ...

    def let_go(self) -> None:
        """End the stream, and leave the command running. From any thread."""
        ...


class LeftExecs(Protocol):
    """A port: finds such commands again."""

    def follow(
        self, ref: ExecRef, *, timeout_seconds: float | None, escaped: Callable[[str], None] | None = None
    ) -> Iterator[Chunk]:
        """Its stream, as that of ports.Streams.exec, but without its output, which nobody can get any more.

        Blocks while it runs; `close` kills it, and it is Leavable. Raises StreamError where nobody can tell how it
        ended. An engine that can't be asked is waited for.
        """
        ...
