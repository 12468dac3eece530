"""Pieces of a sandbox's log and exec streams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream: `stdout`, `stderr`, or `exit` with the exit code as ASCII digits.

    If the command timed out, an empty `timeout` precedes its `exit`.
    """

    stream: str
    data: bytes
