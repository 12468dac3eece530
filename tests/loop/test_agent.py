"""Sandboxes with agents in the loop: created from the agent's image, kept through its upgrade, warm in pools."""

from collections.abc import Iterator

import pytest

from controller.kinds.planning.action import CreateContainer
from controller.kinds.runtime.agent import IMAGE, volume_name
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, containers, counts, launch

AGENT = {"agent": {}}


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def container_id(harness: LoopHarness, name: str) -> str:
    sandbox = harness.get(name)
    assert sandbox is not None
    return str(sandbox.status["instanceRef"]["containerID"])


def runtime(harness: LoopHarness, name: str) -> str:
    (container,) = [
        entry for group in harness.engine.observe().containers.values() for entry in group if entry.name == name
    ]
    return container.agent


def test_it_waits_for_the_agents_image(harness: LoopHarness) -> None:
    harness.apply("a", template=AGENT)
    harness.settle(seconds=5)
    assert harness.condition("a", "Degraded") == "True AgentImageMissing"
    answer = harness.get("a")
    assert answer is not None
    assert any("images/build.sh agent" in condition["message"] for condition in answer.status["conditions"])
    harness.engine.build_image(IMAGE, ours=True)
    harness.settle()
    assert harness.condition("a", "Ready") == "True Running"
    assert harness.condition("a", "Outdated") == "False UpToDate"
    assert harness.condition("a", "AgentCallersEnforced") == "True OtherUser"


def test_an_upgrade_of_the_agent_recreates_nothing(harness: LoopHarness) -> None:
    old = harness.engine.build_image(IMAGE, ours=True)
    harness.apply("a", template=AGENT)
    harness.apply("plain")
    harness.settle()
    before, name = container_id(harness, "a"), harness.container_name("a")
    assert runtime(harness, name) == volume_name(old)
    new = harness.engine.build_image(IMAGE, ours=True)
    harness.settle()
    assert container_id(harness, "a") == before
    assert harness.condition("a", "Outdated") == "True RenderedDifferently"
    assert harness.condition("a", "Secured") == "True Attested"
    assert harness.condition("plain", "Outdated") == "False UpToDate"
    harness.engine.kill(name)
    harness.settle()
    assert runtime(harness, name) == volume_name(new)
    assert harness.condition("a", "Outdated") == "False UpToDate"
    harness.engine.remove_image(IMAGE)
    harness.settle()
    assert harness.condition("a", "Outdated") == "False UpToDate"


def test_a_sandbox_of_root_says_that_callers_are_not_enforced(harness: LoopHarness) -> None:
    harness.engine.build_image(IMAGE, ours=True)
    harness.apply("root", template={**AGENT, "user": "0:0", "securityLevel": "production"})
    harness.apply("open", template={"agent": {"callers": "Anyone"}})
    harness.settle()
    assert harness.condition("root", "AgentCallersEnforced") == "False RunsAsRoot"
    assert harness.condition("open", "AgentCallersEnforced") == ""


def test_an_added_agent_makes_a_new_container(harness: LoopHarness) -> None:
    harness.engine.build_image(IMAGE, ours=True)
    harness.apply("a")
    harness.settle()
    before = container_id(harness, "a")
    harness.apply("a", template=AGENT)
    harness.settle()
    assert container_id(harness, "a") != before
    assert runtime(harness, harness.container_name("a"))
    assert any("spec.template.agent changed" in event.message for event in harness.store.events(kind="Sandbox"))


def test_a_pools_members_have_agents_and_are_claimed_warm(harness: LoopHarness) -> None:
    harness.engine.build_image(IMAGE, ours=True)
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"], **AGENT)
    apply_pool(harness, warmReplicas=2)
    harness.settle()
    assert counts(harness) == (2, 2, 0)
    assert all(runtime(harness, sandbox) for sandbox in containers(harness))
    harness.refer("a", "t")
    first = harness.reconcile_pass.run()
    assert not [action for group in first.groups for action in group.actions if isinstance(action, CreateContainer)]
    harness.settle()
    assert (launch(harness, "a"), harness.condition("a", "Ready")) == ("Warm: ", "True Running")
    assert harness.condition("a", "Outdated") == "False UpToDate"
    claimed = container_id(harness, "a")
    new = harness.engine.build_image(IMAGE, ours=True)
    harness.settle()
    assert {runtime(harness, sandbox) for sandbox in containers(harness) if sandbox.startswith("pdk-warm")} == {
        volume_name(new)
    }
    assert (counts(harness), container_id(harness, "a")) == ((2, 2, 1), claimed)
