"""Outcome of a group of actions, and the time of the loop's next look at it."""

from collections import Counter
from collections.abc import Iterator

import pytest

from controller.kinds.planning.plan import Plan
from controller.loop.workers import Workers
from controller.ports import NullMeter
from tests.contract.store_worlds import World
from tests.daemon import wait_for
from tests.loop.harness import LoopHarness


@pytest.fixture
def harness(world: World) -> Iterator[LoopHarness]:
    harness = LoopHarness(world.store())
    yield harness
    harness.close()


def test_a_container_that_runs_now_is_looked_at_at_once_and_a_removed_one_with_what_comes_with_it(
    harness: LoopHarness,
) -> None:
    woken: Counter[str] = Counter()
    workers = Workers(
        harness.engine,
        NullMeter(),
        threads=1,
        wake=lambda: woken.update(["wake"]),
        wake_now=lambda: woken.update(["hurry"]),
    )
    reconcile_pass = harness.pass_with(workers)

    def settled() -> Plan:
        wait_for("the groups came back", lambda: not workers.view()[0])
        return reconcile_pass.run()

    harness.apply("web")
    assert reconcile_pass.run().groups
    settled()
    wait_for("it is told", lambda: woken)
    assert woken == {"hurry": 1}
    harness.delete("web")
    assert settled().groups
    settled()
    workers.stop()
    assert woken == {"hurry": 1, "wake": woken["wake"]}
    assert woken["wake"] >= 1
