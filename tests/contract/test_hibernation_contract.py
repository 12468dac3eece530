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
from tests.contract.engine_hosts import EngineHost, docker_host, fake_host, ok, read_all
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
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    if request.param == "fake":
        with fake_host() as created:
            yield created.settled()
        return
    request.getfixturevalue("swap")
    with docker_host(hibernation=judged) as new_host:
        yield new_host.settled()


def sandbox(host: EngineHost) -> Container:
    """A running sandbox that has written to 8 MiB."""
    uid = host.new_uid()
    running = host.running(uid, command=COMMAND)
    if isinstance(host.engine, FakeEngine):
        host.engine.use_memory(running.name, 8 << 20)
    else:
        wait_for("it has written", lambda: b"ready" in read_all(host.streams.logs(running.id))[0])
    return host.only(uid)


def hibernate(host: EngineHost, container: Container) -> object:
    return host.engine.act(HibernateContainer(container.uid, container.name, container.id, "a test"))


def wake(host: EngineHost, container: Container) -> object:
    return host.engine.act(WakeContainer(container.uid, container.name, container.id, "a test"))


def test_hibernated_is_frozen_with_its_memory_in_swap(host: EngineHost) -> None:
    container = sandbox(host)
    assert isinstance(hibernate(host, container), Ok)
    observed = host.only(container.uid)
    assert observed.state is State.PAUSED
    assert observed.frozen_memory is not None
    assert observed.frozen_memory.swapped_bytes >= 8 << 20
    assert observed.frozen_memory.resident_bytes < 4 << 20
    assert observed.out_of_band == container.out_of_band
    assert observed.limits == container.limits


def test_hibernating_and_waking_each_twice(host: EngineHost) -> None:
    container = sandbox(host)
    for act, state in ((hibernate, State.PAUSED), (wake, State.RUNNING)):
        assert isinstance(act(host, container), Ok)
        assert isinstance(act(host, container), Ok)
        assert host.state(container.uid) == state
    assert host.only(container.uid).frozen_memory is None


def test_a_paused_one_is_hibernated(host: EngineHost) -> None:
    container = sandbox(host)
    ok(host.engine.act(PauseContainer(container.uid, container.name, container.id, "a test")))
    paused = host.only(container.uid).frozen_memory
    assert paused is not None
    assert paused.swapped_bytes == 0
    assert isinstance(hibernate(host, container), Ok)
    assert host.only(container.uid).frozen_memory != paused


def test_a_signal_ends_what_is_hibernated(host: EngineHost) -> None:
    container = sandbox(host)
    assert isinstance(hibernate(host, container), Ok)
    ok(host.engine.act(SignalContainer(container.uid, container.name, container.id, "KILL", "a test")))
    host.until(lambda: host.state(container.uid) == State.EXITED)


def test_the_next_daemon_sees_where_its_memory_is(host: EngineHost) -> None:
    container = sandbox(host)
    assert isinstance(hibernate(host, container), Ok)
    frozen_memory = host.only(container.uid).frozen_memory
    host.next_daemon()
    assert host.only(container.uid).frozen_memory == frozen_memory


@pytest.mark.docker
def test_swapped_memory_is_read_back_ahead_of_its_use(swap: None) -> None:
    with docker_host(hibernation=judged) as host:
        container = sandbox(host.settled())
        assert isinstance(hibernate(host, container), Ok)
        assert isinstance(wake(host, container), Ok)
        read_in(Cgroups(), container.id, container.pid)
        ok(host.engine.act(PauseContainer(container.uid, container.name, container.id, "a test")))
        frozen_memory = host.only(container.uid).frozen_memory
        assert frozen_memory is not None
        assert frozen_memory.resident_bytes > 8 << 20


@pytest.mark.parametrize("kind", ["fake", pytest.param("docker", marks=pytest.mark.docker)])
def test_without_swap_it_runs_on(kind: str) -> None:
    with fake_host() if kind == "fake" else docker_host(hibernation=lambda _: UNABLE) as host:
        host.settled()
        if isinstance(host.engine, FakeEngine):
            host.engine.hibernation = UNABLE
        container = host.running(host.new_uid())
        outcome = hibernate(host, container)
        assert isinstance(outcome, Transient)
        assert (outcome.reason, "no active swap" in outcome.message) == (NOT_HIBERNATED, True)
        assert host.state(container.uid) == State.RUNNING
