"""Drills print what they measured: a table of faults, as Markdown."""

from collections.abc import Callable

import pytest

Report = Callable[[str, str, float, str], None]
_COLUMNS = ("fault", "all well again", "counted from", "lost")


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Report:
    """Note one line of the table: the fault, since when is counted, the seconds, and what was lost."""

    def noted(fault: str, since: str, seconds: float, lost: str) -> None:
        record_property("drill", (fault, f"{seconds:.1f} s", since, lost))

    return noted


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of this run, in the order of the tests."""
    passed = terminalreporter.getreports("passed")
    rows = [row for entry in passed if entry.when == "call" for name, row in entry.user_properties if name == "drill"]
    if not rows:
        return
    terminalreporter.section("drills")
    for row in (_COLUMNS, ["---"] * len(_COLUMNS), *rows):
        terminalreporter.write_line(f"| {' | '.join(row)} |")
