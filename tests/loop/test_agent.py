"""Sandboxes with agents in pools: warm with the agent's image."""

from collections.abc import Iterator

import pytest

from controller.kinds.planning.action import CreateContainer
from controller.kinds.runtime.agent import IMAGE, volume_name
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, LoopHarness
from tests.loop.test_pools import apply_pool, containers, counts, launch

AGENT = {"agent": {}}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
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
