"""Sandboxes with agents: created from the agent's image, and kept through its upgrade."""

import pytest

from controller.kinds.runtime.agent import IMAGE, volume_name
from tests.plan.history import History

AGENT = {"agent": {}}


@pytest.fixture
def history() -> History:
    return History()


def container_id(history: History, name: str) -> str:
    return str(history.status(name)["instanceRef"]["containerID"])


def runtime(history: History, name: str) -> str:
    (container,) = [
        container
        for containers in history.engine.observe().containers.values()
        for container in containers
        if container.name == name
    ]
    return container.agent


def test_it_waits_for_the_agents_image(history: History) -> None:
    history.apply("a", template=AGENT)
    history.settle(seconds=5)
    assert history.condition("a", "Degraded") == "True AgentImageMissing"
    assert "images/build.sh agent" in str(history.status("a")["conditions"])
    history.engine.build_image(IMAGE, ours=True)
    history.settle()
    assert history.condition("a", "Ready") == "True Running"
    assert history.condition("a", "Outdated") == "False UpToDate"
    assert history.condition("a", "AgentCallersEnforced") == "True OtherUser"


def test_an_upgrade_of_the_agent_recreates_nothing(history: History) -> None:
    old = history.engine.build_image(IMAGE, ours=True)
    history.apply("a", template=AGENT)
    history.apply("plain")
    history.settle()
    before, name = container_id(history, "a"), history.container_name("a")
    assert runtime(history, name) == volume_name(old)
    new = history.engine.build_image(IMAGE, ours=True)
    history.settle()
    assert container_id(history, "a") == before
    assert history.condition("a", "Outdated") == "True RenderedDifferently"
    assert history.condition("a", "Secured") == "True Attested"
    assert history.condition("plain", "Outdated") == "False UpToDate"
    history.engine.kill(name)
    history.settle()
    assert runtime(history, name) == volume_name(new)
    assert history.condition("a", "Outdated") == "False UpToDate"
    history.engine.remove_image(IMAGE)
    history.settle()
    assert history.condition("a", "Outdated") == "False UpToDate"


def test_a_sandbox_of_root_says_that_callers_are_not_enforced(history: History) -> None:
    history.engine.build_image(IMAGE, ours=True)
    history.apply("root", template={**AGENT, "user": "0:0", "securityLevel": "production"})
    history.apply("open", template={"agent": {"callers": "Anyone"}})
    history.settle()
    assert history.condition("root", "AgentCallersEnforced") == "False RunsAsRoot"
    assert history.condition("open", "AgentCallersEnforced") == ""


def test_an_added_agent_makes_a_new_container(history: History) -> None:
    history.engine.build_image(IMAGE, ours=True)
    history.apply("a")
    history.settle()
    before = container_id(history, "a")
    history.apply("a", template=AGENT)
    history.settle()
    assert container_id(history, "a") != before
    assert runtime(history, history.container_name("a"))
    assert any("spec.template.agent changed" in event.message for event in history.events)
