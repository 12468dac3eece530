"""Ports into a sandbox: logs, commands, files, TCP ports."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import Container
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.kinds.runtime.agent_call import AgentRequest, LeftExec
from controller.kinds.runtime.files import FileRequest


class StreamError(Exception):
    """A log or exec request that cannot be served; the message is for the user."""


class NotNow(StreamError):
    """Nothing was done, because the engine or the sandbox is not ready for it; the same request may succeed soon."""


class ExitLost(StreamError):
    """A command that has ended, and nobody will ever know how."""


class NeverStarted(StreamError):
    """A command that was prepared, and that the engine never started."""


class ChunkStream(Iterator[Chunk], Protocol):
    """An open stream. Closing it, from any thread, frees the connection; so does reading it to its end."""

    def close(self) -> None: ...


@runtime_checkable
class ExecStream(ChunkStream, Protocol):
    """The stream of a running command. Both methods may block and raise StreamError."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal."""

    def signal(self, name: str) -> None:
        """Send a signal, such as `INT`, to its process group."""


class Streams(Protocol):
    """Log and exec streams of a sandbox. Errors are `StreamError`s, which say what to do."""

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
        """Return log output; closing the iterator frees the connection. `tail` counts before `until` cuts."""

    def inspect(self, container_id: str) -> Mapping[str, Any]:
        """Return the engine's own inspection of one of our containers."""

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
        size: tuple[int, int] | None = None,
        escaped: Callable[[str], None] | None = None,
        prepared: Callable[[ExecRef], None] | None = None,
        hangs_up: bool = False,
    ) -> ExecStream:
        """Run a command; the last chunk is `exit`. With `tty` all its output is `stdout`; `size`: its rows and columns.

        Closing its stream kills all its processes. With `hangs_up` it sends SIGHUP to those of its session instead, as
        a lost terminal does, and may wait for a reader without end.

        Past `timeout_seconds` all its processes are killed (exit 124). `escaped` is called, from any thread, if
        processes are left then that may belong to the command, without proof. `prepared` is called just before the
        start, with the reference by which the command is found again.
        """
        ...


class PortTaken(StreamError):
    """Another program listens on the port."""


class PortForwarder(Protocol):
    """TCP ports of a sandbox, from inside its own network."""

    def connect(self, container: Container, port: int) -> socket.socket:
        """Connect to that port of the sandbox's 127.0.0.1. May block for some seconds. Raises StreamError."""


class PortListener(Protocol):
    """Listeners in a sandbox, inside its own network."""

    def listen(self, container: Container, port: int) -> socket.socket:
        """Listen on that port of the sandbox's 127.0.0.1. Raises PortTaken; StreamError."""


class AgentError(Exception):
    """A failed request to an agent; the message is for the user. `kind` is a word for programs.

    NotListening NotTaken Refused: it has not begun. NoAnswer TimedOut BadAnswer: it may have.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def begun(self) -> bool:
        """True if what was requested may have begun."""
        return self.kind in ("NoAnswer", "TimedOut", "BadAnswer")


class AgentAnswer(Protocol):
    """An answer of an agent; nothing in it may be trusted. Its methods may block and raise AgentError."""

    def head(self) -> tuple[int, Mapping[str, str]]:
        """Wait for the status and the headers, by their names in lower case. Call it once, and first."""
        ...

    def read(self) -> bytes:
        """Return a piece of the body, b"" at its end."""
        ...

    def allow(self, seconds: float | None) -> None:
        """Set the time for the rest of it; None: no limit."""
        ...

    def close(self) -> None:
        """End it, from any thread; what was called is cancelled unless it has ended. Idempotent."""


class Agents(Protocol):
    """The agents in sandboxes. Each call may block. Raises AgentError."""

    def ask(self, container: Container, port: int, request: AgentRequest, *, seconds: float | None) -> AgentAnswer:
        """Send a request; return its answer to come. `seconds` bounds all of it (None: nothing does)."""
        ...

    def exec(
        self,
        container: Container,
        port: int,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        working_dir: str = "",
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
        escaped: Callable[[str], None] | None = None,
        label: str = "",
    ) -> ExecStream:
        """Run a command, as `Streams.exec` does; return its stream once it runs.

        One with a `label` outlives this daemon, if the agent can do that.
        """
        ...

    def orphans(self, container: Container, port: int) -> Sequence[LeftExec]:
        """Return the commands with a label that nobody reads; none of an agent that keeps none."""
        ...

    def join(self, container: Container, port: int, id_: str) -> ExecStream:
        """Return the stream of such a command: first the newest of what it wrote while nobody read it."""
        ...


class FileWork(Protocol):
    """One running file operation. Methods may block and raise FileError; `close`, from any thread, ends each.

    `send` input, then `end` it: otherwise an operation changes nothing (but files already unpacked). `receive` returns
    output, b"" at its end. `result` is available before the output (read, pack), and at the end.
    """

    def send(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def receive(self) -> bytes: ...
    def result(self) -> Mapping[str, Any]: ...
    def close(self) -> None: ...

    def hand_over(self) -> tuple[int, int]:
        """Return the descriptors of its input and output, without frames (`sftp`). They are the caller's."""
        ...


class Files(Protocol):
    """Files of a sandbox, with its user's permissions; see FileRequest."""

    def begin(self, container: Container, ask: FileRequest) -> FileWork:
        """Start an operation in a running container. Raises FileError."""


@runtime_checkable
class DetachableExec(Protocol):
    """The stream of a command that can be detached."""

    @property
    def ref(self) -> ExecRef | None:
        """Return the reference to find it again; None if it can't be found."""
        ...

    def detach_stream(self) -> None:
        """End the stream, and leave the command running. From any thread."""
        ...


class AdoptedExecs(Protocol):
    """Finds detached commands again."""

    def follow(
        self,
        ref: ExecRef,
        *,
        timeout_seconds: float | None,
        escaped: Callable[[str], None] | None = None,
        starts: bool = False,
    ) -> Iterator[Chunk]:
        """Return its stream, like that of ports.Streams.exec, but without its output, which is lost.

        With `starts`, a command that was prepared and never started is started: the engine starts it once, whoever
        else asks for it. Blocks while it runs; `close` kills it, and it can be detached again. Raises StreamError if
        its end is unknown, NeverStarted if it has none. An unreachable engine is waited for.
        """
        ...
