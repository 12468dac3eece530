"""Order of starts: a sandbox waits for those that its spec names, and for nobody once it runs."""

import pytest

from tests.plan.history import History


@pytest.fixture
def history() -> History:
    return History()


def apply(history: History, name: str, condition: str = "", **spec: object) -> None:
    after = {"startAfter": [{"sandbox": "db", "condition": condition}]} if condition else {}
    history.apply(name, **after, **spec)
    history.settle()


@pytest.mark.parametrize("condition", ["Started", "Ready"])
def test_it_starts_after_the_other_one(history: History, condition: str) -> None:
    apply(history, "web", condition)
    assert history.condition("web", "Scheduled") == "False StartsLater"
    assert history.message("web", "Scheduled") == "it starts after db, and there is no such sandbox"
    apply(history, "db")
    assert history.condition("web", "Ready") == "True Running"
    calls = [str(call) for call in history.engine.calls if str(call).startswith("start ")]
    assert calls == [f"start {history.container_name(name)}" for name in ("db", "web")]
    history.delete("db")
    history.settle()
    assert history.condition("web", "Ready") == "True Running"


def test_a_later_start_waits_for_nobody(history: History) -> None:
    apply(history, "db")
    apply(history, "web", "Ready")
    for name in ("web", "db"):
        apply(history, name, "Ready" if name == "web" else "", runState="Suspended")
    assert history.condition("web", "Suspended").startswith("True")
    apply(history, "web", "Ready")
    assert history.condition("web", "Ready") == "True Running"
    assert history.condition("db", "Ready") != "True Running"


def test_a_job_may_be_deleted_after_its_success(history: History) -> None:
    apply(history, "db", restartPolicy="Never")
    apply(history, "web", "Succeeded")
    history.engine.exit(history.container_name("db"), 0)
    history.settle()
    history.delete("db")
    apply(history, "web", "Succeeded", runState="Suspended")
    apply(history, "web", "Succeeded")
    assert history.condition("web", "Ready") == "True Running"


def test_success_is_an_end_with_code_0(history: History) -> None:
    apply(history, "db", restartPolicy="Never")
    apply(history, "web", "Succeeded")
    assert "which has not ended" in history.message("web", "Scheduled")
    history.engine.exit(history.container_name("db"), 1)
    history.settle()
    assert "which ended with exit code 1" in history.message("web", "Scheduled")


def test_an_ended_one_frees_those_that_wait(history: History) -> None:
    apply(history, "db", restartPolicy="Never")
    apply(history, "web", "Succeeded")
    history.engine.exit(history.container_name("db"), 0)
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
