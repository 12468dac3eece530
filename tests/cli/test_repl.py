"""`paddock repl` and `exec --context`: pieces of code as they are typed, and pictures where a terminal shows them."""

import base64
from collections.abc import Iterator

import pytest

from controller.cli.code import contexts
from controller.cli.code.contexts import picture_sequence, read_cells

PNG = base64.b64encode(b"\x89PNG" * 2000).decode()


@pytest.mark.parametrize(
    ("typed", "cells"),
    [
        (["1 + 1", "2"], ["1 + 1", "2"]),
        (["def f():", "  return 1", "", "f()"], ["def f():\n  return 1\n", "f()"]),
        (["%%bash", "echo 1", "", "x"], ["%%bash\necho 1\n", "x"]),
        (["!ls", "len?", "", "exit", "never"], ["!ls", "len?"]),
        (["def f(:", "1"], ["def f(:", "1"]),
    ],
)
def test_a_block_ends_with_an_empty_line(typed: list[str], cells: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines: Iterator[str] = iter(typed)

    def answer(_prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)
    assert list(read_cells("python", prompt=True)) == cells


def test_pictures_only_where_the_terminal_shows_them() -> None:
    assert picture_sequence(PNG, {"TERM": "xterm-256color"}) == b""
    kitty = picture_sequence(PNG, {"TERM": "xterm-kitty"})
    assert kitty.startswith(b"\x1b_Ga=T,f=100,m=1;")
    assert kitty.endswith(b"\x1b\\\n")
    assert picture_sequence(PNG, {"TERM_PROGRAM": "iTerm.app"}).startswith(b"\x1b]1337;File=inline=1;size=8000:")
    for forged in ("x\x07\x1b]0;title\x07", "a\x1b\\"):
        assert picture_sequence(forged, {"TERM": "xterm-kitty"}) == b""


def test_exit_codes_are_those_of_commands() -> None:
    assert contexts._EXIT_CODES == {"ok": 0, "error": 1, "timeout": 124, "interrupted": 130, "died": 1}
