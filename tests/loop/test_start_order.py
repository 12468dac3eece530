"""Order of starts through the loop: a sandbox waits for those that its spec names, and for nobody once it runs."""

from collections.abc import Iterator

import pytest

from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def apply(harness: LoopHarness, name: str, condition: str = "", **spec: object) -> None:
    after = {"startAfter": [{"sandbox": "db", "condition": condition}]} if condition else {}
    harness.apply(name, **after, **spec)
    harness.settle()


def message(harness: LoopHarness, name: str) -> str:
    sandbox = harness.get(name)
    assert sandbox is not None
    return next(str(entry["message"]) for entry in sandbox.status["conditions"] if entry["type"] == "Scheduled")


@pytest.mark.parametrize("condition", ["Started", "Ready"])
def test_it_starts_after_the_other_one(harness: LoopHarness, condition: str) -> None:
    apply(harness, "web", condition)
    assert harness.condition("web", "Scheduled") == "False StartsLater"
    assert message(harness, "web") == "it starts after db, and there is no such sandbox"
    apply(harness, "db")
    assert harness.condition("web", "Ready") == "True Running"
    calls = [str(call) for call in harness.engine.calls if str(call).startswith("start ")]
    assert calls == [f"start {harness.container_name(name)}" for name in ("db", "web")]
    harness.delete("db")
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"


def test_a_later_start_waits_for_nobody(harness: LoopHarness) -> None:
    apply(harness, "db")
    apply(harness, "web", "Ready")
    for name in ("web", "db"):
        apply(harness, name, "Ready" if name == "web" else "", runState="Suspended")
    assert harness.condition("web", "Suspended").startswith("True")
    apply(harness, "web", "Ready")
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.condition("db", "Ready") != "True Running"


def test_a_job_may_be_deleted_after_its_success(harness: LoopHarness) -> None:
    apply(harness, "db", restartPolicy="Never")
    apply(harness, "web", "Succeeded")
    harness.engine.exit(harness.container_name("db"), 0)
    harness.settle()
    harness.delete("db")
    apply(harness, "web", "Succeeded", runState="Suspended")
    apply(harness, "web", "Succeeded")
    assert harness.condition("web", "Ready") == "True Running"


def test_success_is_an_end_with_code_0(harness: LoopHarness) -> None:
    apply(harness, "db", restartPolicy="Never")
    apply(harness, "web", "Succeeded")
    assert "which has not ended" in message(harness, "web")
    harness.engine.exit(harness.container_name("db"), 1)
    harness.settle()
    assert "which ended with exit code 1" in message(harness, "web")


def test_an_ended_one_frees_those_that_wait(harness: LoopHarness) -> None:
    apply(harness, "db", restartPolicy="Never")
    apply(harness, "web", "Succeeded")
    harness.engine.exit(harness.container_name("db"), 0)
    harness.settle()
    assert harness.condition("web", "Ready") == "True Running"
