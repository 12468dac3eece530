"""On a terminal: colours in tables. Elsewhere, and with NO_COLOR, plain text."""

import pytest

from controller.cli.text.output import paint
from tests.cli.conftest import Run
from tests.cli.terminals import on_terminal
from tests.helpers_api import QUICKSTART, ApiStack

BOLD, GREEN, YELLOW, RED = "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[31m"


def test_tables_have_colours_on_terminals_alone(paddock: Run, served: ApiStack) -> None:
    served.apply()
    served.set_ready()
    plain = paddock("get", "sb").stdout
    assert "\x1b" not in plain
    with on_terminal(served, "get", "sb") as screen:
        assert screen.ended() == 0
    assert screen.text == plain
    assert f"{BOLD}NAME" in screen.styled
    assert f"{GREEN}Running" in screen.styled
    with on_terminal(served, "get", "sb", NO_COLOR="1") as screen:
        assert screen.ended() == 0
    assert screen.styled == plain


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("NAME         READY   NET RX", f"{BOLD}NAME         READY   NET RX\x1b[0m"),
        ("a   True   Running", f"a   {GREEN}True\x1b[0m   {GREEN}Running\x1b[0m"),
        ("a   False   CrashLoopBackOff", f"a   {YELLOW}False\x1b[0m   {RED}CrashLoopBackOff\x1b[0m"),
        ("a   False   Creating", f"a   {YELLOW}False\x1b[0m   {YELLOW}Creating\x1b[0m"),
        ("a   NotSecured   ImagePullFailed", f"a   {RED}NotSecured\x1b[0m   {RED}ImagePullFailed\x1b[0m"),
        ("a   the program ended with Error   5d", "a   the program ended with Error   5d"),
        ("", ""),
    ],
)
def test_states_by_colour(line: str, shown: str) -> None:
    assert paint(line) == shown


def test_verbose_shows_each_request(paddock: Run, served: ApiStack) -> None:
    served.apply(QUICKSTART)
    for message in (("-v", "get", "sb"), ("get", "sb", "-v"), ("get", "sb", "-v=8"), ("--v=6", "get", "sb")):
        done = paddock(*message)
        assert done.exit_code == 0
        assert "GET /apis/paddock/v1alpha1/namespaces/default/sandboxes?limit=500 200 in " in done.stderr, message
        assert " ms\n" in done.stderr
        assert "GET /" not in done.stdout
    for quiet in (("get", "sb"), ("get", "sb", "-v=0")):
        assert paddock(*quiet).stderr == ""
    output = paddock("-v", "get", "sb", "none").stderr
    assert "sandboxes/none 404 in " in output
    assert "WebSocket /apis/" in paddock("-v", "exec", "quickstart", "--", "true").stderr
