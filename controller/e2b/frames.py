"""Messages of Connect's streams (https://connectrpc.com/docs/protocol): 1 byte of flags, 4 of length, and JSON.

Pure. The last message of an answer has the flag END and `{}`, or an error.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from controller.service.errors import BadRequest, TooLarge

COMPRESSED, END = 1, 2
MESSAGE_BYTES = 4 << 20
_HEAD = struct.Struct(">BI")


def frame(message: Mapping[str, Any], flags: int = 0) -> bytes:
    """Return a message as it is sent."""
    data = json.dumps(message, separators=(",", ":")).encode()
    return _HEAD.pack(flags, len(data)) + data


class FrameReader:
    """Messages of a request's body, which arrives in pieces of any size. At most one message is kept in memory."""

    def __init__(self, most_bytes: int = MESSAGE_BYTES) -> None:
        self._most_bytes, self._data = most_bytes, bytearray()

    def add(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete with this piece. Raises BadRequest; TooLarge."""
        self._data += piece
        while len(self._data) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(self._data)
            if flags & COMPRESSED:
                raise BadRequest("the message is compressed; send it without compression")
            if flags:
                raise BadRequest(f"the message has the flags {flags}, and a request's has none; send 0")
            if size > self._most_bytes:
                raise TooLarge(f"the message has {size} bytes, over {self._most_bytes >> 20} MiB; send it in parts")
            if len(self._data) < _HEAD.size + size:
                return
            data = bytes(self._data[_HEAD.size : _HEAD.size + size])
            del self._data[: _HEAD.size + size]
            yield parsed(data)

    def end(self) -> None:
        """Raise BadRequest if the body ended within a message."""
        if self._data:
            raise BadRequest("the body ends within a message; send all of its bytes")


def only_message(body: bytes) -> dict[str, Any]:
    """Return the one message of a body. Raises BadRequest; TooLarge."""
    reader = FrameReader()
    messages = list(reader.add(body))
    reader.end()
    if len(messages) != 1:
        raise BadRequest(f"the body has {len(messages)} messages; send one")
    return messages[0]


def parsed(data: bytes) -> dict[str, Any]:
    """Return a message of JSON; an empty one is `{}`. Raises BadRequest."""
    try:
        message = json.loads(data or b"{}")
    except RecursionError:
        raise BadRequest("the message is nested too deeply; send fewer levels") from None
    except ValueError as error:
        raise BadRequest(f"the message is not valid JSON: {error}") from None
    if not isinstance(message, dict):
        raise BadRequest("the message is no object; send a JSON object")
    return message
