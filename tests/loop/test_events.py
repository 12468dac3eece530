"""Event texts as they read afterwards: none tells of a state that the same action ended."""

from collections.abc import Iterator

import pytest

from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def texts(harness: LoopHarness, kind: str, name: str) -> dict[str, str]:
    """The reasons in brackets of an object's newest events, by the events' reasons."""
    events = sorted(harness.store.events(kind=kind, name=name), key=lambda each: each.at)
    return {event.reason: event.message.rpartition(" (")[2].rstrip(")") for event in events}


def test_first_start_tells_what_was_found_and_done(harness: LoopHarness) -> None:
    harness.apply("a")
    harness.settle()
    assert texts(harness, "Sandbox", "a") == {"Created": "found no container, desired one", "Started": "just created"}


def test_restart_tells_the_end_before_it(harness: LoopHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.engine.kill(harness.container_name("a"))
    harness.clock.advance(1)
    harness.settle()
    assert texts(harness, "Sandbox", "a")["Started"] == "restarted after Killed: exit code 137"


def test_replaced_container_tells_why_it_was_replaced(harness: LoopHarness) -> None:
    harness.apply("a")
    harness.settle()
    harness.clock.advance(1)
    harness.apply("a", template={"env": [{"name": "A", "value": "1"}]})
    harness.settle()
    reported = texts(harness, "Sandbox", "a")
    assert reported["Created"] == reported["Removed"] == "spec.template.env changed"
    assert reported["Started"] == "just created"


def test_retired_member_is_not_called_deleted(harness: LoopHarness) -> None:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
    apply_pool(harness, warmReplicas=1)
    harness.settle()
    apply_pool(harness, warmReplicas=0)
    harness.settle()
    reported = texts(harness, "SandboxPool", "warm")
    assert reported["Stopping"] == reported["Removed"] == "retired from its pool"


def test_network_made_anew_is_not_called_missing(harness: LoopHarness) -> None:
    harness.apply("a", template={"securityLevel": "production"})
    harness.settle()
    assert texts(harness, "Sandbox", "a")["NetworkMade"] == "found no bridge of its own"
    harness.clock.advance(1)
    harness.apply("a", template={"securityLevel": "production"}, runState="Suspended")
    harness.settle()
    [name] = harness.engine.networks
    harness.engine.replace_network(name, config_hash="of an older version")
    harness.clock.advance(1)
    harness.apply("a", template={"securityLevel": "production"})
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    assert texts(harness, "Sandbox", "a")["NetworkMade"] == "its bridge differs from the desired one"
