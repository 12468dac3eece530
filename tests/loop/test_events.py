"""Event texts as they read afterwards: none tells of a state that the same action ended."""

from collections.abc import Iterator

import pytest

from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def texts(house: LoopHarness, kind: str, name: str) -> dict[str, str]:
    """The reasons in brackets of an object's newest events, by the events' reasons."""
    events = sorted(house.store.events(kind=kind, name=name), key=lambda each: each.at)
    return {event.reason: event.message.rpartition(" (")[2].rstrip(")") for event in events}


def test_first_start_tells_what_was_found_and_done(house: LoopHarness) -> None:
    house.apply("a")
    house.settle()
    assert texts(house, "Sandbox", "a") == {"Created": "found no container, desired one", "Started": "just created"}


def test_restart_tells_the_end_before_it(house: LoopHarness) -> None:
    house.apply("a")
    house.settle()
    house.engine.kill(house.container_name("a"))
    house.clock.advance(1)
    house.settle()
    assert texts(house, "Sandbox", "a")["Started"] == "restarted after Killed: exit code 137"


def test_replaced_container_tells_why_it_was_replaced(house: LoopHarness) -> None:
    house.apply("a")
    house.settle()
    house.clock.advance(1)
    house.apply("a", template={"env": [{"name": "A", "value": "1"}]})
    house.settle()
    reported = texts(house, "Sandbox", "a")
    assert reported["Created"] == reported["Removed"] == "spec.template.env changed"
    assert reported["Started"] == "just created"


def test_retired_member_is_not_called_deleted(house: LoopHarness) -> None:
    house.apply_template("t", image=TINY, command=["sleep", "1000000"])
    apply_pool(house, warmReplicas=1)
    house.settle()
    apply_pool(house, warmReplicas=0)
    house.settle()
    reported = texts(house, "SandboxPool", "warm")
    assert reported["Stopping"] == reported["Removed"] == "retired from its pool"


def test_network_made_anew_is_not_called_missing(house: LoopHarness) -> None:
    house.apply("a", template={"securityLevel": "production"})
    house.settle()
    assert texts(house, "Sandbox", "a")["NetworkMade"] == "found no bridge of its own"
    house.clock.advance(1)
    house.apply("a", template={"securityLevel": "production"}, runState="Suspended")
    house.settle()
    [name] = house.engine.networks
    house.engine.replace_network(name, config_hash="of an older version")
    house.clock.advance(1)
    house.apply("a", template={"securityLevel": "production"})
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert texts(house, "Sandbox", "a")["NetworkMade"] == "its bridge differs from the desired one"
