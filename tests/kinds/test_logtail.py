"""The last words of a container: bounded, valid, and harmless wherever they are shown."""

import json

import pytest

from controller.kinds.common.log_tail import TAIL_BYTES, TAIL_LINES, tail_of


def test_the_last_lines_are_kept() -> None:
    tail = tail_of("".join(f"line {at}\n" for at in range(100)).encode())
    assert tail.lines == tuple(f"line {at}" for at in range(100 - TAIL_LINES, 100))


def test_a_last_line_without_an_end_is_one() -> None:
    assert tail_of(b"one\r\n\ntwo").lines == ("one", "", "two")


def test_an_empty_log_is_empty() -> None:
    assert tail_of(b"").lines == ()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"\x1b[2J\x1b]0;root\x07", "\\x1b[2J\\x1b]0;root\\x07"),
        (b"nul \x00", "nul \\x00"),
        (b"half \xe2\x82", "half \ufffd"),
        ("c1 \x9b31m".encode(), "c1 \\x9b31m"),
        ("bidi \u202e".encode(), "bidi \\u202e"),
        ("tag \U000e0041".encode(), "tag \\U000e0041"),
        ("tab\tand ünïcödé ✓ 漢字".encode(), "tab\tand ünïcödé ✓ 漢字"),
        (b"over\rwritten", "over\\x0dwritten"),
    ],
)
def test_active_characters_are_escaped(written: bytes, shown: str) -> None:
    assert tail_of(written).lines == (shown,)


@pytest.mark.parametrize("written", [b"x" * (1 << 20), b"\x1b" * (1 << 20), b"\n" * (1 << 20), "✓".encode() * 9999])
def test_the_tail_is_bounded(written: bytes) -> None:
    lines = tail_of(written).lines
    assert 0 < len(lines) <= TAIL_LINES
    assert sum(len(line.encode()) + 1 for line in lines) <= TAIL_BYTES
    assert "\\u0000" not in json.dumps(lines)
