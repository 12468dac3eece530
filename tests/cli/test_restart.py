"""`paddock restart`: stopped sandboxes are started again, also when it fails."""

import threading

import pytest

from tests.cli.conftest import Run
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack

OTHER = QUICKSTART.replace("name: quickstart", "name: other")
NAMES = ("quickstart", "other")


@pytest.fixture
def two(served: ApiStack) -> ApiStack:
    served.apply(f"{QUICKSTART}---\n{OTHER}")
    return served


def report(api: ApiStack, condition: str) -> None:
    """Give both sandboxes this condition, as the planner would."""
    for name in NAMES:
        observed = api.sandbox(name).generation
        document = {"type": condition, "status": "True", "reason": condition, "observedGeneration": observed}
        api.change(name, status={"observedGeneration": observed, "conditions": [document]})


def states(api: ApiStack) -> list[str]:
    return [api.sandbox(name).spec.get("runState", "Running") for name in NAMES]


def test_restart_stops_all_and_starts_them_again(paddock: Run, two: ApiStack) -> None:
    def play() -> None:
        wait_for("both stop", lambda: states(two) == ["Suspended", "Suspended"], 60)
        report(two, "Suspended")
        wait_for("both start", lambda: states(two) == ["Running", "Running"], 60)
        report(two, "Ready")

    planner = threading.Thread(target=play)
    planner.start()
    done = paddock("restart", *NAMES)
    planner.join()
    assert (done.exit_code, done.stdout) == (
        0,
        "sandbox.paddock/quickstart restarted\nsandbox.paddock/other restarted\n",
    )


def test_a_wrong_name_stops_nothing(paddock: Run, two: ApiStack) -> None:
    before = [two.sandbox(name).generation for name in NAMES]
    done = paddock("restart", *NAMES, "typo")
    assert (done.exit_code, "`typo` not found" in done.stderr) == (1, True)
    assert [two.sandbox(name).generation for name in NAMES] == before


def test_a_timeout_leaves_nothing_stopped(paddock: Run, two: ApiStack) -> None:
    done = paddock("restart", *NAMES, "--timeout", "0")
    assert (done.exit_code, "not Suspended within 0 s: quickstart, other" in done.stderr) == (1, True)
    assert states(two) == ["Running", "Running"]
    assert two.sandbox().generation > 1
