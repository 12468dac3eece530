"""Tokens of an answer, read from it as it passes; estimated where it reports none."""

import json
from collections.abc import Mapping
from typing import Any

_LONGEST_LINE = 1 << 20
_MOST_BODY = 8 << 20
_BYTES_A_TOKEN = 4
_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")


class UsageReader:
    """Reads the usage of one answer. `feed` it every part; then ask for `tokens`.

    Streams report it in events, with fields that grow: the largest of each counts.
    """

    def __init__(self, content_type: str, request_bytes: int) -> None:
        self.is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._request_bytes = request_bytes
        self._held = bytearray()
        self._found: dict[str, int] = {}
        self._events = 0
        self._bytes = 0
        self._skipping = False

    def feed(self, data: bytes) -> None:
        """Take in the next part of the answer."""
        self._bytes += len(data)
        if not self.is_stream:
            if len(self._held) + len(data) <= _MOST_BODY:
                self._held += data
            return
        *ends, remainder = data.split(b"\n")
        for end in ends:
            self._keep(end)
            if not self._skipping:
                self._line(self._held)
            self._held, self._skipping = bytearray(), False
        self._keep(remainder)

    def _keep(self, piece: bytes) -> None:
        """Add to the line, without a look at what it has already: it may come byte by byte."""
        self._skipping = self._skipping or len(self._held) + len(piece) > _LONGEST_LINE
        if self._skipping:
            self._held.clear()
        else:
            self._held += piece

    def tokens(self, *, finished: bool = True) -> tuple[int, int]:
        """Return the tokens in and out, reported or estimated. `finished`: the answer came to its end."""
        if not self.is_stream and self._bytes == len(self._held):
            self._take(_parse(bytes(self._held)))
        return self._tokens(finished=finished)

    def tokens_so_far(self) -> int:
        """Return the tokens in and out of an answer that goes on: reported in events, or estimated."""
        return sum(self._tokens(finished=False))

    def _tokens(self, *, finished: bool) -> tuple[int, int]:
        estimated_in = self._request_bytes // _BYTES_A_TOKEN
        estimated_out = self._events if self.is_stream else self._bytes // _BYTES_A_TOKEN
        usage = self._found
        tokens_in = max((usage[name] for name in _INPUT if name in usage), default=estimated_in)
        tokens_in += sum(usage.get(name, 0) for name in _CACHED)
        unreported = 0 if self._is_complete else estimated_out
        tokens_out = max((usage[name] for name in _OUTPUT if name in usage), default=unreported)
        return tokens_in, tokens_out if finished else max(tokens_out, estimated_out)

    @property
    def _is_complete(self) -> bool:
        """True if the answer reported its input alone, as embeddings do."""
        return not self.is_stream and any(name in self._found for name in _INPUT)

    def _line(self, line: bytearray) -> None:
        if not line.startswith(b"data:"):
            return
        self._events += 1
        if b'"usage"' in line:
            self._take(_parse(line[5:]))

    def _take(self, body: Mapping[str, Any]) -> None:
        for holder in (body, body.get("message"), body.get("response")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                for name in (*_INPUT, *_OUTPUT, *_CACHED):
                    value = usage.get(name)
                    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
                        self._found[name] = max(value, self._found.get(name, 0))


def _parse(data: bytes | bytearray) -> Mapping[str, Any]:
    try:
        # Of bytes, `loads` guesses the encoding, and loads its codec: the process can read no file for one any more.
        usage = json.loads(data.decode())
    except (ValueError, RecursionError):
        return {}
    return usage if isinstance(usage, dict) else {}


class Redactor:
    """Replaces a key in an answer: a source that echoes its request must not give the key to a sandbox.

    The end of a part is held back only while it may be the beginning of the key.
    """

    def __init__(self, key: str) -> None:
        self._key, self._held = key.encode(), b""

    def feed(self, data: bytes) -> bytes:
        """Return the part that may be passed on."""
        if not self._key:
            return data
        data = self._held + data
        if self._key in data:
            data = data.replace(self._key, b"***")
        length = self._beginning(data)
        self._held = data[len(data) - length :]
        return data[: len(data) - length]

    def flush(self) -> bytes:
        """Return what is held back at the end of the answer."""
        remainder, self._held = self._held, b""
        return remainder

    def is_in(self, text: bytes) -> bool:
        """Return True if the key is in this text."""
        return bool(self._key) and self._key in text

    def _beginning(self, data: bytes) -> int:
        """Return the length of the key's beginning at the end of the data."""
        longest = min(len(self._key) - 1, len(data))
        if not longest or self._key[:1] not in data[-longest:]:
            return 0
        return next((size for size in range(longest, 0, -1) if data.endswith(self._key[:size])), 0)
