"""Output of commands and lines of streams: bounded, whatever a sandbox writes."""

from hypothesis import given
from hypothesis import strategies as st

from paddock._client.connection import MAX_LINE_BYTES, LineSplitter
from paddock._models import KeptOutput, KeptStreams


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 100))
def test_kept_output_is_head_and_tail(pieces: list[bytes], limit: int) -> None:
    kept_output, text = KeptOutput(limit), b"".join(pieces)
    for piece in pieces:
        kept_output.add(piece)
        assert len(kept_output._head) + len(kept_output._tail) <= limit
    assert kept_output.omitted_bytes == max(0, len(text) - limit)
    if len(text) <= limit:
        assert kept_output.text == text.decode(errors="replace")
    else:
        head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
        mark = f"\n[... {kept_output.omitted_bytes} bytes left out ...]\n".encode()
        assert kept_output.text == (head + mark + tail).decode(errors="replace")


def test_a_result_tells_that_output_was_left_out() -> None:
    for content, before, truncated in ((b"12345678", False, False), (b"123456789", False, True), (b"", True, True)):
        kept_streams = KeptStreams(8)
        kept_streams.add("stderr", content)
        assert kept_streams.result(0, timed_out=False, truncated=before).truncated is truncated


@given(st.lists(st.sampled_from(["a", "\n", "\r\n", "\u2028", "\x0b\x1c", "é"]), max_size=30), st.integers(1, 5))
def test_lines_end_at_line_feeds_alone(parts: list[str], size: int) -> None:
    data = "".join(parts).encode()
    splitter = LineSplitter()
    lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    expected = [name.removesuffix("\r") for name in "".join(parts).split("\n")]
    assert lines + splitter.flush() == (expected if expected[-1] else expected[:-1])


def test_an_endless_line_comes_in_parts() -> None:
    splitter, piece = LineSplitter(), b"x" * (1 << 20)
    lines = [line for _ in range(40) for line in splitter.feed(piece)]
    assert [len(line) for line in lines] == [MAX_LINE_BYTES + len(piece)] * 2
    assert len(splitter.flush()[0]) == 40 * len(piece) - sum(map(len, lines))
