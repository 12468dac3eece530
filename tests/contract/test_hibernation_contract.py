"""Contract of hibernation: one suite on the fake engine, and on a real one with compressed swap in memory."""

from collections.abc import Iterator

import pytest

from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.page_out import read_in
from controller.engine.usage.swap import SwapGauge
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.swap import HibernationAbility
from controller.kinds.planning.action import HibernateContainer, PauseContainer, SignalContainer, WakeContainer
from controller.kinds.planning.outcome import NOT_HIBERNATED, Ok, Transient
from controller.policy.host.hibernation import judge
from tests.contract.engine_worlds import World, docker_world, fake_world, ok, read_all
from tests.daemon import wait_for
from tests.fakes.engine import FakeEngine
from tests.zram import zram_swap

UNABLE = HibernationAbility(False, "NoSwap", "the host has no active swap")
# Eight MiB of memory of its own, and then it waits.
_DOUBLE = "held=ab; for each in $(seq 22); do held=$held$held; done"
COMMAND = ("sh", "-c", f"{_DOUBLE}; echo ready; sleep 1000; echo $held")


def judged(_used_bytes: int) -> HibernationAbility:
    return judge(SwapGauge().read(), None, to_plain_disk=False)


@pytest.fixture(scope="module")
def swap() -> Iterator[None]:
    with zram_swap("256M"):
        yield


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        with fake_world() as created:
            yield created.settled()
        return
    request.getfixturevalue("swap")
    with docker_world(hibernation=judged) as created_docker_world:
        yield created_docker_world.settled()


def sandbox(world: World) -> Container:
    """A running sandbox that has written to 8 MiB."""
    uid = world.new_uid()
    running = world.running(uid, command=COMMAND)
    if isinstance(world.engine, FakeEngine):
        world.engine.use_memory(running.name, 8 << 20)
    else:
        wait_for("it has written", lambda: b"ready" in read_all(world.streams.logs(running.id))[0])
    return world.only(uid)


def hibernate(world: World, container: Container) -> object:
    return world.engine.act(HibernateContainer(container.uid, container.name, container.id, "a test"))


def wake(world: World, container: Container) -> object:
    return world.engine.act(WakeContainer(container.uid, container.name, container.id, "a test"))


def test_hibernated_is_frozen_with_its_memory_in_swap(world: World) -> None:
    container = sandbox(world)
    assert isinstance(hibernate(world, container), Ok)
    observed = world.only(container.uid)
    assert observed.state is State.PAUSED
    assert observed.frozen_memory is not None
    assert observed.frozen_memory.swapped_bytes >= 8 << 20
    assert observed.frozen_memory.resident_bytes < 4 << 20
    assert observed.out_of_band == container.out_of_band
    assert observed.limits == container.limits


def test_hibernating_and_waking_each_twice(world: World) -> None:
    container = sandbox(world)
    for act, state in ((hibernate, State.PAUSED), (wake, State.RUNNING)):
        assert isinstance(act(world, container), Ok)
        assert isinstance(act(world, container), Ok)
        assert world.state(container.uid) == state
    assert world.only(container.uid).frozen_memory is None


def test_a_paused_one_is_hibernated(world: World) -> None:
    container = sandbox(world)
    ok(world.engine.act(PauseContainer(container.uid, container.name, container.id, "a test")))
    paused = world.only(container.uid).frozen_memory
    assert paused is not None
    assert paused.swapped_bytes == 0
    assert isinstance(hibernate(world, container), Ok)
    assert world.only(container.uid).frozen_memory != paused


def test_a_signal_ends_what_is_hibernated(world: World) -> None:
    container = sandbox(world)
    assert isinstance(hibernate(world, container), Ok)
    ok(world.engine.act(SignalContainer(container.uid, container.name, container.id, "KILL", "a test")))
    world.until(lambda: world.state(container.uid) == State.EXITED)


def test_the_next_daemon_sees_where_its_memory_is(world: World) -> None:
    container = sandbox(world)
    assert isinstance(hibernate(world, container), Ok)
    frozen_memory = world.only(container.uid).frozen_memory
    world.next_daemon()
    assert world.only(container.uid).frozen_memory == frozen_memory


@pytest.mark.docker
def test_swapped_memory_is_read_back_ahead_of_its_use(swap: None) -> None:
    with docker_world(hibernation=judged) as world:
        container = sandbox(world.settled())
        assert isinstance(hibernate(world, container), Ok)
        assert isinstance(wake(world, container), Ok)
        read_in(Cgroups(), container.id, container.pid)
        ok(world.engine.act(PauseContainer(container.uid, container.name, container.id, "a test")))
        frozen_memory = world.only(container.uid).frozen_memory
        assert frozen_memory is not None
        assert frozen_memory.resident_bytes > 8 << 20


@pytest.mark.parametrize("kind", ["fake", pytest.param("docker", marks=pytest.mark.docker)])
def test_without_swap_it_runs_on(kind: str) -> None:
    with fake_world() if kind == "fake" else docker_world(hibernation=lambda _: UNABLE) as world:
        world.settled()
        if isinstance(world.engine, FakeEngine):
            world.engine.hibernation = UNABLE
        container = world.running(world.new_uid())
        outcome = hibernate(world, container)
        assert isinstance(outcome, Transient)
        assert (outcome.reason, "no active swap" in outcome.message) == (NOT_HIBERNATED, True)
        assert world.state(container.uid) == State.RUNNING
