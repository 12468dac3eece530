"""An inspect's data, read into ours."""

import pytest

from controller.engine.docker.inspect import stop_signal_of


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("", ""),
        ("SIGINT", "INT"),
        ("quit", "QUIT"),
        ("SIGRTMIN+3", "RTMIN+3"),
        ("RTMAX-1", "RTMAX-1"),
        ("37", "37"),
        ("0", ""),
        ("99", ""),
        ("SIGRTMIN+16", ""),
        ("NONSENSE", ""),
    ],
)
def test_only_signals_that_the_engine_sends_are_read(text: str, signal: str) -> None:
    assert stop_signal_of(text) == signal
