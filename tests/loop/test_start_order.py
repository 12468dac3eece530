"""Order of starts through the loop: a sandbox waits for those that its spec names, and for nobody once it runs."""

from collections.abc import Iterator

import pytest

from tests.contract.store_worlds import World
from tests.loop.harness import LoopHarness


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def apply(house: LoopHarness, name: str, condition: str = "", **spec: object) -> None:
    after = {"startAfter": [{"sandbox": "db", "condition": condition}]} if condition else {}
    house.apply(name, **after, **spec)
    house.settle()


def message(house: LoopHarness, name: str) -> str:
    sandbox = house.get(name)
    assert sandbox is not None
    return next(str(entry["message"]) for entry in sandbox.status["conditions"] if entry["type"] == "Scheduled")


@pytest.mark.parametrize("condition", ["Started", "Ready"])
def test_it_starts_after_the_other_one(house: LoopHarness, condition: str) -> None:
    apply(house, "web", condition)
    assert house.condition("web", "Scheduled") == "False StartsLater"
    assert message(house, "web") == "it starts after db, and there is no such sandbox"
    apply(house, "db")
    assert house.condition("web", "Ready") == "True Running"
    calls = [str(call) for call in house.engine.calls if str(call).startswith("start ")]
    assert calls == [f"start {house.container_name(name)}" for name in ("db", "web")]
    house.delete("db")
    house.settle()
    assert house.condition("web", "Ready") == "True Running"


def test_a_later_start_waits_for_nobody(house: LoopHarness) -> None:
    apply(house, "db")
    apply(house, "web", "Ready")
    for name in ("web", "db"):
        apply(house, name, "Ready" if name == "web" else "", runState="Suspended")
    assert house.condition("web", "Suspended").startswith("True")
    apply(house, "web", "Ready")
    assert house.condition("web", "Ready") == "True Running"
    assert house.condition("db", "Ready") != "True Running"


def test_a_job_may_be_deleted_after_its_success(house: LoopHarness) -> None:
    apply(house, "db", restartPolicy="Never")
    apply(house, "web", "Succeeded")
    house.engine.exit(house.container_name("db"), 0)
    house.settle()
    house.delete("db")
    apply(house, "web", "Succeeded", runState="Suspended")
    apply(house, "web", "Succeeded")
    assert house.condition("web", "Ready") == "True Running"


def test_success_is_an_end_with_code_0(house: LoopHarness) -> None:
    apply(house, "db", restartPolicy="Never")
    apply(house, "web", "Succeeded")
    assert "which has not ended" in message(house, "web")
    house.engine.exit(house.container_name("db"), 1)
    house.settle()
    assert "which ended with exit code 1" in message(house, "web")


def test_an_ended_one_frees_those_that_wait(house: LoopHarness) -> None:
    apply(house, "db", restartPolicy="Never")
    apply(house, "web", "Succeeded")
    house.engine.exit(house.container_name("db"), 0)
    house.settle()
    assert house.condition("web", "Ready") == "True Running"
