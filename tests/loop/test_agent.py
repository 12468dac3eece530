"""Sandboxes with agents in the loop: created from the agent's image, kept through its upgrade, warm in pools."""

from collections.abc import Iterator

import pytest

from controller.kinds.planning.action import CreateContainer
from controller.kinds.runtime.agent import IMAGE, volume_name
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, boxes, counts, launch

AGENT = {"agent": {}}


@pytest.fixture
def house(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def container_id(house: LoopHarness, name: str) -> str:
    harness = house.get(name)
    assert harness is not None
    return str(harness.status["instanceRef"]["containerID"])


def runtime(house: LoopHarness, name: str) -> str:
    (container,) = [
        entry for group in house.engine.observe().containers.values() for entry in group if entry.name == name
    ]
    return container.agent


def test_it_waits_for_the_agents_image(house: LoopHarness) -> None:
    house.apply("a", template=AGENT)
    house.settle(seconds=5)
    assert house.condition("a", "Degraded") == "True AgentImageMissing"
    answer = house.get("a")
    assert answer is not None
    assert any("images/build.sh agent" in condition["message"] for condition in answer.status["conditions"])
    house.engine.build_image(IMAGE, ours=True)
    house.settle()
    assert house.condition("a", "Ready") == "True Running"
    assert house.condition("a", "Outdated") == "False UpToDate"
    assert house.condition("a", "AgentCallersEnforced") == "True OtherUser"


def test_an_upgrade_of_the_agent_recreates_nothing(house: LoopHarness) -> None:
    old = house.engine.build_image(IMAGE, ours=True)
    house.apply("a", template=AGENT)
    house.apply("plain")
    house.settle()
    before, name = container_id(house, "a"), house.container_name("a")
    assert runtime(house, name) == volume_name(old)
    new = house.engine.build_image(IMAGE, ours=True)
    house.settle()
    assert container_id(house, "a") == before
    assert house.condition("a", "Outdated") == "True RenderedDifferently"
    assert house.condition("a", "Secured") == "True Attested"
    assert house.condition("plain", "Outdated") == "False UpToDate"
    house.engine.kill(name)
    house.settle()
    assert runtime(house, name) == volume_name(new)
    assert house.condition("a", "Outdated") == "False UpToDate"
    house.engine.remove_image(IMAGE)
    house.settle()
    assert house.condition("a", "Outdated") == "False UpToDate"


def test_a_sandbox_of_root_says_that_callers_are_not_enforced(house: LoopHarness) -> None:
    house.engine.build_image(IMAGE, ours=True)
    house.apply("root", template={**AGENT, "user": "0:0", "securityLevel": "production"})
    house.apply("open", template={"agent": {"callers": "Anyone"}})
    house.settle()
    assert house.condition("root", "AgentCallersEnforced") == "False RunsAsRoot"
    assert house.condition("open", "AgentCallersEnforced") == ""


def test_an_added_agent_makes_a_new_container(house: LoopHarness) -> None:
    house.engine.build_image(IMAGE, ours=True)
    house.apply("a")
    house.settle()
    before = container_id(house, "a")
    house.apply("a", template=AGENT)
    house.settle()
    assert container_id(house, "a") != before
    assert runtime(house, house.container_name("a"))
    assert any("spec.template.agent changed" in event.message for event in house.store.events(kind="Sandbox"))


def test_a_pools_members_have_agents_and_are_claimed_warm(house: LoopHarness) -> None:
    house.engine.build_image(IMAGE, ours=True)
    house.apply_template("t", image=TINY, command=["sleep", "1000000"], **AGENT)
    apply_pool(house, warmReplicas=2)
    house.settle()
    assert counts(house) == (2, 2, 0)
    assert all(runtime(house, sandbox) for sandbox in boxes(house))
    house.refer("a", "t")
    first = house.reconcile_pass.run()
    assert not [action for group in first.groups for action in group.actions if isinstance(action, CreateContainer)]
    house.settle()
    assert (launch(house, "a"), house.condition("a", "Ready")) == ("Warm: ", "True Running")
    assert house.condition("a", "Outdated") == "False UpToDate"
    claimed = container_id(house, "a")
    new = house.engine.build_image(IMAGE, ours=True)
    house.settle()
    assert {runtime(house, sandbox) for sandbox in boxes(house) if sandbox.startswith("pdk-warm")} == {volume_name(new)}
    assert (counts(house), container_id(house, "a")) == ((2, 2, 1), claimed)
