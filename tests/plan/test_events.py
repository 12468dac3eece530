"""Event texts as they read afterwards: none tells of a state that the same action ended."""

import pytest

from tests.plan.history import TINY, History


@pytest.fixture
def history() -> History:
    return History()


def texts(history: History, kind: str, name: str) -> dict[str, str]:
    """The reasons in brackets of an object's newest events, by the events' reasons."""
    events = sorted(history.events, key=lambda event: event.at)
    own_events = [event for event in events if (event.ref.kind, event.ref.name) == (kind, name)]
    return {event.reason: event.message.rpartition(" (")[2].rstrip(")") for event in own_events}


def test_first_start_tells_what_was_found_and_done(history: History) -> None:
    history.apply("a")
    history.settle()
    assert texts(history, "Sandbox", "a") == {"Created": "found no container, desired one", "Started": "just created"}


def test_restart_tells_the_end_before_it(history: History) -> None:
    history.apply("a")
    history.settle()
    history.engine.kill(history.container_name("a"))
    history.clock.advance(1)
    history.settle()
    assert texts(history, "Sandbox", "a")["Started"] == "restarted after Killed: exit code 137"


def test_replaced_container_tells_why_it_was_replaced(history: History) -> None:
    history.apply("a")
    history.settle()
    history.clock.advance(1)
    history.apply("a", template={"env": [{"name": "A", "value": "1"}]})
    history.settle()
    reported = texts(history, "Sandbox", "a")
    assert reported["Created"] == reported["Removed"] == "spec.template.env changed"
    assert reported["Started"] == "just created"


def test_retired_member_is_not_called_deleted(history: History) -> None:
    history.put("SandboxTemplate", "t", image=TINY, command=["sleep", "1000000"])
    history.put("SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=1)
    history.settle()
    history.put("SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=0)
    history.settle()
    reported = texts(history, "SandboxPool", "warm")
    assert reported["Stopping"] == reported["Removed"] == "retired from its pool"


def test_network_made_anew_is_not_called_missing(history: History) -> None:
    history.apply("a", template={"securityLevel": "production"})
    history.settle()
    assert texts(history, "Sandbox", "a")["NetworkMade"] == "found no bridge of its own"
    history.clock.advance(1)
    history.apply("a", template={"securityLevel": "production"}, runState="Suspended")
    history.settle()
    [name] = history.engine.networks
    history.engine.replace_network(name, config_hash="of an older version")
    history.clock.advance(1)
    history.apply("a", template={"securityLevel": "production"})
    history.settle()
    assert history.condition("a", "Ready") == "True Running"
    assert texts(history, "Sandbox", "a")["NetworkMade"] == "its bridge differs from the desired one"
