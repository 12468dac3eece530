"""Commands that go on when the daemon that began them does not: what they are found again by."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from controller.kinds.common.chunk import Chunk


@dataclass(frozen=True, slots=True)
class ExecRef:
    """A running command, in words that outlive the daemon. `mark` is in the environment of its processes.

    `init_pid` is the box's first process, `since_ticks` when the command may have begun, in ticks since boot.
    """

    exec_id: str
    container_id: str
    init_pid: int
    mark: str
    since_ticks: int


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
