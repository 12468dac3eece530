"""Lines of an untrusted program: cut anywhere, garbage, floods."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.mcp.servers.lines import MOST_GARBAGE, MOST_LINE_BYTES, Flood, Lines
from tests.examples import examples


@given(st.lists(st.text(max_size=20), max_size=5), st.integers(1, 9))
@settings(max_examples=examples(100))
def test_messages_survive_any_cut(texts: list[str], step: int) -> None:
    sent = [{"jsonrpc": "2.0", "method": name} for name in texts]
    data = b"".join(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\r\n" for document in sent)
    lines = Lines()
    observed = [document for start in range(0, len(data), step) for document in lines.feed(data[start : start + step])]
    assert [document["method"] for document in observed] == [name.encode("utf-8", "replace").decode() for name in texts]


def test_garbage_between_messages_is_ignored() -> None:
    lines = Lines()
    deep = b"[" * 100_000
    data = b'log\n\xff\xfe\n{"a":1}\n{"jsonrpc":"2.0"\n[1]\n{"x":' + deep + b'\n\n{"jsonrpc":"2.0","id":1}\n'
    assert [document["id"] for document in lines.feed(data)] == [1]


@pytest.mark.parametrize(
    "line",
    [
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1}',
        b'Listening on stdio... {"jsonrpc":"2.0","id":1}',
        b'> {x} [info] {"jsonrpc" : "2.0", "id": 1} done',
        b'[{"jsonrpc":"2.0","id":1}, 5]',
        b'{"jsonrpc":2.0,"id":1}',
        b'{"jsonrpc":"2.0","id":1,"text":"\xff"}',
    ],
)
def test_messages_are_understood_however_written(line: bytes) -> None:
    assert [document["id"] for document in Lines().feed(line + b"\n")] == [1]


def test_messages_without_a_line_feed_between_are_several() -> None:
    line = b'{"jsonrpc":"2.0","id":1}{"jsonrpc":"2.0","id":2}\n'
    assert [document["id"] for document in Lines().feed(line)] == [1, 2]


def test_endless_lines_and_garbage_are_floods() -> None:
    with pytest.raises(Flood, match="a line of more than 4 MiB"):
        list(Lines().feed(b"x" * (MOST_LINE_BYTES + 1)))
    with pytest.raises(Flood, match="lines that are no messages"):
        list(Lines().feed(b"x\n" * (MOST_GARBAGE + 1)))
    with pytest.raises(Flood, match="lines that are no messages"):
        list(Lines().feed(b"\n" * (MOST_GARBAGE + 1)))
