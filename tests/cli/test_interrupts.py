"""Ctrl-C ends a command with exit code 130, as the README says."""

import pytest

from tests.cli.terminals import on_terminal
from tests.daemon import wait_for
from tests.helpers_api import ApiStack


@pytest.mark.parametrize(
    "words",
    [
        ("wait", "--for=condition=Ready", "sandbox/quickstart"),
        ("get", "sandboxes", "-w"),
        ("restart", "quickstart"),
        ("run", "-c", "1"),
    ],
)
def test_a_wait_is_interrupted(served: ApiStack, words: tuple[str, ...]) -> None:
    served.apply()
    with on_terminal(served, *words) as screen:
        wait_for("it watches", lambda: served.services.watches.count)
        screen.interrupt()
        assert screen.ended() == 130
    assert "Aborted" not in screen.text
    assert "Traceback" not in screen.text


def test_events_are_watched_until_interrupted(served: ApiStack) -> None:
    served.apply()
    with on_terminal(served, "-v", "events", "-w") as screen:
        screen.until("/events")
        screen.interrupt()
        assert screen.ended() == 130
    assert "Aborted" not in screen.text


def test_a_prompt_is_interrupted(served: ApiStack) -> None:
    with on_terminal(served, "secret", "set", "x", "--for", "sandboxes") as screen:
        screen.until("Value of x")
        screen.interrupt()
        assert screen.ended() == 130
