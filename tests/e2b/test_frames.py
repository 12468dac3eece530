"""Frames of Connect, byte by byte; hostile ones are refused in words."""

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.e2b.frames import END, MESSAGE_BYTES, FrameReader, frame, only_message, parsed
from controller.service.errors import BadRequest, TooLarge
from tests.examples import examples

MESSAGES = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20), max_size=4)


@settings(max_examples=examples(100))
@given(st.lists(MESSAGES, max_size=4), st.integers(1, 7))
def test_pieces_of_any_size_give_the_messages(messages: list[dict[str, object]], size: int) -> None:
    data, reader = b"".join(map(frame, messages)), FrameReader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [message for piece in pieces for message in reader.add(piece)] == messages
    reader.end()


def test_the_last_frame_has_its_flag() -> None:
    data = frame({}, END)
    assert data[0] == END
    assert json.loads(data[5:]) == {}


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (struct.pack(">BI", 0, MESSAGE_BYTES + 1), TooLarge, "over 4 MiB"),
        (struct.pack(">BI", 0, 0xFFFFFFFF) + b"x", TooLarge, "over 4 MiB"),
        (struct.pack(">BI", 1, 2) + b"{}", BadRequest, "compressed"),
        (struct.pack(">BI", 2, 2) + b"{}", BadRequest, "flags"),
        (struct.pack(">BI", 0, 2) + b"[]", BadRequest, "no object"),
        (struct.pack(">BI", 0, 2) + b"\xff\xff", BadRequest, "JSON"),
        (struct.pack(">BI", 0, 9) + b"{}", BadRequest, "ends within"),
        (frame({}) * 2, BadRequest, "2 messages"),
        (b"", BadRequest, "0 messages"),
        (b"\0\0", BadRequest, "ends within"),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        only_message(body)


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(BadRequest, match="deeply"):
        parsed(b'{"a":' + b"[" * 200_000)
