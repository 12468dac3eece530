"""Hibernation: who hibernates, who wakes, and what both wait for."""

from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.observed.pressure import Pressure
from controller.kinds.observed.swap import HibernationAbility
from controller.kinds.planning.action import Action, HibernateContainer, WakeContainer
from controller.kinds.planning.outcome import NOT_HIBERNATED, Transient
from tests.plan.history import History

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}


@pytest.fixture
def history() -> History:
    history = History()
    history.engine.at_rest = history.hibernates = True
    return history


def hibernated(history: History, *names: str) -> None:
    """Sandboxes that idleness hibernated."""
    for name in names:
        history.apply(name, lifecycle=IDLE)
    history.settle(seconds=0)
    history.settle(seconds=70)
    for name in names:
        assert history.condition(name, "Ready") == "False Hibernated"


def behind_one_that_hangs(history: History) -> None:
    """Two are asked for on two processors: `hangs`, whose wake never ends, and `web`, which waits for its turn."""
    history.engine.facts = replace(history.engine.facts, cpus=2)
    hibernated(history, "hangs", "web")
    for name in ("hangs", "web"):
        history.begin_use(name)
    history.hang("hangs")
    assert history.run_pass().next_wake is not None
    assert history.run_pass().queued == {history.object("Sandbox", "web").uid}


def count(history: History, kind: type) -> int:
    return sum(isinstance(action, kind) for action in history.engine.calls)


@pytest.mark.parametrize(("cpus", "stalls", "wakes"), [(1, False, 1), (4, False, 2), (12, False, 6), (12, True, 1)])
def test_few_are_woken_at_once(history: History, cpus: int, *, stalls: bool, wakes: int) -> None:
    history.pressure, history.engine.facts = Pressure(stalls=stalls), replace(history.engine.facts, cpus=cpus)
    names = [f"web-{number}" for number in range(10)]
    hibernated(history, *names)
    for name in names:
        history.begin_use(name)
    plan = history.run_pass()
    assert sum(isinstance(action, WakeContainer) for group in plan.groups for action in group.actions) == wakes
    assert history.condition("web-9", "Scheduled") == "False WakeQueued"
    assert history.run_pass().queued == {history.object("Sandbox", name).uid for name in names[2 * wakes :]}, (
        "whoever waits need not look"
    )
    history.settle(seconds=0)
    assert history.run_pass().queued == frozenset()
    assert {history.condition(name, "Ready") for name in names} == {"True Running"}


def test_a_wake_that_hangs_holds_up_no_other(history: History) -> None:
    behind_one_that_hangs(history)
    history.settle(seconds=6)
    assert [history.condition(name, "Ready") for name in ("hangs", "web")] == ["False Waking", "True Running"]


@pytest.mark.parametrize(("stalls", "most"), [(False, 8), (True, 2)])
def test_wakes_that_hang_do_not_pile_up(history: History, *, stalls: bool, most: int) -> None:
    history.pressure, history.engine.facts = Pressure(stalls=stalls), replace(history.engine.facts, cpus=2)
    names = [f"web-{number}" for number in range(10)]
    hibernated(history, *names)
    for name in names:
        history.begin_use(name)
        history.hang(name)
    history.settle(seconds=60)
    assert sum(history.condition(name, "Ready") == "False Waking" for name in names) == most


def test_one_that_runs_leaves_the_queue_of_wakes(history: History) -> None:
    """Somebody unpaused it, beside Paddock: whoever waits for it need not wait for its turn."""
    behind_one_that_hangs(history)
    history.engine.unpause(history.container_name("web"))
    history.settle(seconds=0)
    assert history.run_pass().queued == frozenset()
    assert history.condition("web", "Ready") == "True Running"


def test_a_pause_by_a_person_stays_a_pause(history: History) -> None:
    history.apply("web", runState="Paused", lifecycle=IDLE)
    history.settle(seconds=500)
    assert history.condition("web", "Ready") == "False Paused"
    assert count(history, HibernateContainer) == 0


def test_a_host_that_can_not_lets_it_run(history: History) -> None:
    history.engine.hibernation = HibernationAbility(False, "NoSwap", "the host has no active swap")
    history.apply("web", runState="Hibernated", lifecycle=IDLE)
    history.settle(seconds=0)
    assert (history.engine.container(history.container_name("web")).state, history.condition("web", "Ready")) == (
        State.RUNNING,
        "False HibernationUnavailable",
    )
    history.engine.hibernation = HibernationAbility(True, "CompressedMemory")
    history.settle(seconds=40)
    assert history.condition("web", "Ready") == "False Hibernated"


def test_one_that_can_not_be_hibernated_is_suspended(history: History) -> None:
    history.engine.fail_next(HibernateContainer, *[Transient(NOT_HIBERNATED, "no")] * 3)
    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=0)
    history.settle(seconds=100)
    assert history.condition("web", "Suspended") == "True IdleReaped"


def test_callers_that_give_up_hold_up_no_wake(history: History) -> None:
    names = [f"web-{number}" for number in range(10)]
    hibernated(history, *names)
    for name in names:
        history.begin_use(name)
    history.run_pass()
    for name in names[:-1]:
        history.end_use(name)
    history.settle(seconds=1)
    assert history.condition("web-9", "Ready") == "True Running"
    assert {history.condition(name, "Scheduled") for name in names} == {"True Assigned"}


def test_new_limits_during_a_hibernation_wait_for_the_wake(history: History) -> None:
    spec: dict[str, Any] = {"lifecycle": IDLE, "resources": {"limits": {"memory": "96Mi"}}}

    def resize(action: Action) -> None:
        if isinstance(action, HibernateContainer):
            history.apply("web", runState="Hibernated", **spec)

    history.apply("web", lifecycle=IDLE)
    history.settle(seconds=0)
    history.before = resize
    history.apply("web", runState="Hibernated", lifecycle=IDLE)
    history.settle(seconds=5)
    assert history.condition("web", "Ready") == "False Hibernated"
    assert history.condition("web", "Resized") == "False Deferred"
    history.apply("web", **spec)
    history.settle(seconds=5)
    assert history.condition("web", "Resized") == "True InForce"
    assert history.engine.container(history.container_name("web")).limits.memory_bytes == 96 << 20
