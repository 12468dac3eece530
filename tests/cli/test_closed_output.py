"""An output that is full, closed or read no further: one clear line, and no traceback."""

import pytest

from tests.cli.shells import shell
from tests.helpers_api import QUICKSTART, ApiStack

FULL = "error: the output can't be written: No space left on device; make room, or write it elsewhere\n"


@pytest.mark.parametrize("words", ["--version", "--help", "version", "explain sandbox"])
def test_a_full_output_is_reported(words: str) -> None:
    done = shell(f"paddock {words} >/dev/full")
    assert (done.returncode, done.stderr) == (1, FULL)


def test_a_full_output_of_objects_is_reported(served: ApiStack) -> None:
    served.apply("---\n".join(QUICKSTART.replace("name: quickstart", f"name: a{index}") for index in range(20)))
    done = shell("paddock get sb -o yaml >/dev/full", served.socket)
    assert (done.returncode, done.stderr) == (1, FULL)


def test_a_closed_output_is_refused_before_anything_is_done(served: ApiStack) -> None:
    served.apply()
    for message in ("get sb", "delete sb quickstart --no-wait"):
        done = shell(f"paddock {message} >&-", served.socket)
        assert done.returncode == 1
        assert done.stderr == "error: stdout is closed; open it, or add `>/dev/null` to drop the output\n"
    assert served.sandbox().deleted_at is None


def test_other_streams_may_be_closed(served: ApiStack) -> None:
    done = shell("paddock -v get sb <&- 2>&-", served.socket)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_has_read_enough_ends_it(served: ApiStack) -> None:
    served.apply("---\n".join(QUICKSTART.replace("name: quickstart", f"name: a{index}") for index in range(200)))
    done = shell("paddock get sb -o yaml | head -1; echo ${PIPESTATUS[0]}", served.socket)
    assert (done.stdout, done.stderr) == ("apiVersion: paddock/v1alpha1\n0\n", "")
