"""What the streams of a box are made of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream: `stdout`, `stderr`, or `exit` with the exit code as ASCII digits.

    Before the `exit` of a command whose time was over comes an empty `timeout`.
    """

    stream: str
    data: bytes
