"""End of the daemon when one of its threads ends by an error."""

import threading
from collections.abc import Iterator

import pytest

from controller.app.crash_handler import end_with_endless_threads


@pytest.fixture
def ended() -> Iterator[list[bool]]:
    """A list that each call adds to; the test's own hook is put back."""
    observed: list[bool] = []
    before = threading.excepthook
    end_with_endless_threads(lambda: observed.append(True))
    yield observed
    threading.excepthook = before


@pytest.mark.parametrize(("name", "fatal"), [("reconcile-loop", True), ("engine-events", True), ("detached", False)])
def test_one_that_should_go_on_for_ever_takes_the_daemon_with_it(
    ended: list[bool], capsys: pytest.CaptureFixture[str], name: str, *, fatal: bool
) -> None:
    def fail() -> None:
        raise OSError(24, "Too many open files")

    thread = threading.Thread(target=fail, name=name)
    thread.start()
    thread.join()
    assert ended == [True] * fatal
    readouterr = capsys.readouterr()
    assert name in readouterr.out + readouterr.err
    assert "Too many open files" in readouterr.out + readouterr.err
