"""Value of a program's last expression: its text, and the exact output beside it."""

import subprocess
import sys
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock._last_value import Values


def run(code: str, *arguments: str) -> tuple[Values, "subprocess.CompletedProcess[bytes]"]:
    values = Values()
    command = [sys.executable, *values.command[1:], *arguments]
    return values, subprocess.run(command, input=code.encode(), capture_output=True, timeout=60, check=False)


def output(values: Values, pieces: Iterable[bytes]) -> bytes:
    return b"".join(map(values.output, pieces)) + values.flush()


@pytest.mark.parametrize(
    ("code", "stdout", "value"),
    [
        ("x = 6\nx * 7", b"", "42"),
        ("print(6 * 7)", b"42\n", None),
        ("print('out', end='')\n{'a': 1}", b"out", "{'a': 1}"),
        ("'text'", b"", "'text'"),
        ("import sys\nprint(sys.argv, __name__)\nsorted(globals())[-1]", b"['-', 'a', '-b'] __main__\n", "'sys'"),
        ("for each in 'ab':\n    each", b"", None),
        ("", b"", None),
    ],
)
def test_last_expression_is_the_value(code: str, stdout: bytes, value: str | None) -> None:
    values, done = run(code, "a", "-b")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (output(values, [done.stdout]), values.value) == (stdout, value)


@pytest.mark.parametrize(
    "code", ["1 / 0", "def f():\n    raise ValueError(1)\nf()", "def f(", "import sys; sys.exit(3)"]
)
def test_failures_are_those_of_the_interpreter(code: str) -> None:
    plain = subprocess.run([sys.executable, "-"], input=code.encode(), capture_output=True, timeout=60, check=False)
    values, done = run(code)
    assert (done.returncode, done.stderr, done.stdout) == (plain.returncode, plain.stderr, plain.stdout)
    assert output(values, [done.stdout]) == b""
    assert values.value is None


def test_a_long_value_is_bounded() -> None:
    values, done = run("'x' * 1_000_000")
    assert output(values, [done.stdout]) == b""
    assert (len(values.value or ""), (values.value or "")[-3:]) == (65539, "...")


@given(before=st.binary(), after=st.binary(), size=st.integers(1, 50))
def test_stdout_is_exact_however_it_is_cut(before: bytes, after: bytes, size: int) -> None:
    values = Values()
    stream = before + values.mark + b"2\x0042" + after
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert (output(values, pieces), values.value) == (before + after, "42")
