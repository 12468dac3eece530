"""Lines of JSON-RPC from an untrusted program: cut at line feeds, bounded, garbage told apart."""

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_LINE_BYTES = 4 << 20
MOST_GARBAGE = 10_000  # lines in a row that are no message, blank ones too
Message = dict[str, Any]
_BOM = "\ufeff"
_START = re.compile(r'\{\s{0,8}"(?:jsonrpc|id|method|params|result|error)"')
_MOST_STARTS = 8  # in a line, of what may be a message
_DECODER = json.JSONDecoder()
_VERSIONS = ("2.0", 2)  # some write it as a number


class Flood(Exception):
    """The program's output can't be read any further; the message says why."""


class Lines:
    """Collects bytes, and yields the messages of whole lines. A character may be split between two pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held, self._garbage = 0, 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that this piece completes. Raises Flood."""
        *ends, remainder = data.split(b"\n")
        for piece in ends:
            self._keep(piece)
            line = b"".join(self._pieces)
            self._pieces, self._held = [], 0
            messages = _messages(line)
            if messages:
                self._garbage = 0
                yield from messages
            else:
                self._garbage += 1
                if self._garbage > MOST_GARBAGE:
                    raise Flood(f"it wrote more than {MOST_GARBAGE} lines that are no messages")
        self._keep(remainder)

    def _keep(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > MOST_LINE_BYTES:
            raise Flood(f"it wrote a line of more than {MOST_LINE_BYTES >> 20} MiB")
        if piece:
            self._pieces.append(piece)


def _messages(line: bytes) -> list[Message]:
    """Return the messages of a line: one, several of a batch, or those between other text that it has no line for."""
    text = line.decode(errors="replace").strip().lstrip(_BOM)
    if "{" not in text:
        return []
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return list(_messages_between(text))
    return [message for message in (document if isinstance(document, list) else [document]) if _is_message(message)]


def _messages_between(text: str) -> Iterator[Message]:
    """Yield the messages of a line that has other text, too: a prompt or a log without its line feed."""
    end = 0
    for _ in range(_MOST_STARTS):
        start = _START.search(text, end)
        if start is None:
            return
        try:
            value, end = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            end = start.end()
            continue
        if _is_message(value):
            yield value


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("jsonrpc") in _VERSIONS
