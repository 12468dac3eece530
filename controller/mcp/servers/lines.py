"""Lines of JSON-RPC from an untrusted program: cut at line feeds, bounded, garbage told apart."""

import json
from collections.abc import Iterator
from typing import Any

MOST_LINE_BYTES = 4 << 20
MOST_GARBAGE = 10_000  # lines in a row that are no message, blank ones too
Message = dict[str, Any]


class Flood(Exception):
    """The program's output can't be read any further; the message says why."""


class Lines:
    """Collects bytes, and yields the messages of whole lines. A character may be split between two pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held, self._garbage = 0, 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that this piece completes. Raises Flood."""
        *ends, rest = data.split(b"\n")
        for each in ends:
            self._keep(each)
            line = b"".join(self._pieces)
            self._pieces, self._held = [], 0
            message = _message(line)
            if message is not None:
                self._garbage = 0
                yield message
            else:
                self._garbage += 1
                if self._garbage > MOST_GARBAGE:
                    raise Flood(f"it wrote more than {MOST_GARBAGE} lines that are no messages")
        self._keep(rest)

    def _keep(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > MOST_LINE_BYTES:
            raise Flood(f"it wrote a line of more than {MOST_LINE_BYTES >> 20} MiB")
        if piece:
            self._pieces.append(piece)


def _message(line: bytes) -> Message | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("jsonrpc") == "2.0" else None
