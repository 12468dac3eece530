"""`paddock repl` and `exec --context`: pieces of code as they are typed, and pictures where a terminal shows them."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.cli.code import contexts
from controller.cli.code.contexts import picture_sequence, read_cells
from controller.cli.code.prompt import Completer
from paddock._client.errors import ClientError
from tests.agent.conftest import start
from tests.api.test_contexts import Front, front, real
from tests.cli.terminals import on_terminal

__all__ = ["front", "real", "start"]

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


def test_tab_completes_live_names_and_lines_stay(real: Front, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    with on_terminal(real.api, "repl", "quickstart", **state) as screen:
        screen.until("python> ")
        screen.type("forty_one = 41\n")
        screen.until("python> ", 2)
        screen.type("forty_\t + 1\n")
        screen.until("forty_one + 1")
        screen.until("42")
        screen.until("python> ", 3)
        screen.type("forty_one.bit_l\t()\n\x04")
        screen.until("forty_one.bit_length()")
        assert screen.ended() == 0
    with on_terminal(real.api, "repl", "quickstart", **state) as screen:
        screen.until("python> ")
        screen.type("\x1b[A\n\x04")  # the line before
        assert "forty_one.bit_length()" in screen.until("\n6\n")
    assert (tmp_path / "paddock" / "repl-python").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("line", "begin", "answer", "candidates"),
    [
        ("x = da", 4, (2, ["data", "date"]), ["data", "date"]),
        ("a.b.c", 0, (1, ["count"]), ["a.b.count"]),
        ("a.b.c", 0, (2, [".count"]), ["a.b.count"]),
        ("d", 0, (1, ["data\x1b]0;title\x07", "d\n"]), []),
        ("  ", 2, (0, ["never"]), ["    "]),
        ("d", 0, ClientError("it is busy"), []),
    ],
)
def test_matches_are_placed_in_the_line(
    line: str, begin: int, answer: tuple[int, list[str]] | ClientError, candidates: list[str]
) -> None:
    def complete(_: str) -> tuple[int, list[str]]:
        if isinstance(answer, ClientError):
            raise answer
        return answer

    assert Completer(complete).candidates(line, begin) == candidates
