"""What an engine that is stopped, killed and started again does to its containers, on an engine of the test's own."""

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.engine.engine import DockerEngine
from controller.kinds.instance import Memory
from controller.plan.deaths import end_of
from tests.contract.engine_worlds import DockerHand, WallClock, World, new_instance_id
from tests.contract.private_engine import PrivateEngine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]
Make = Callable[..., tuple[PrivateEngine, World]]


@pytest.fixture
def make() -> Iterator[Make]:
    if shutil.which("dockerd") is None:
        pytest.skip("dockerd is not installed here")
    folder = Path(tempfile.mkdtemp(prefix="pdk-"))  # a socket's path is short
    closing: list[Callable[[], None]] = []

    def made(*options: str) -> tuple[PrivateEngine, World]:
        private = PrivateEngine(folder, *options)
        closing.append(private.close)
        private.start()
        private.load()
        id_ = new_instance_id()
        engine = DockerEngine(id_, base_url=private.base_url, clock=WallClock(), pauses_seconds=(0.1, 0.5))
        closing.append(engine.close)
        hand = DockerHand()
        closing.append(hand.api.close)
        return private, World(id_, engine, engine.streams, hand).settled()

    yield made
    for close in reversed(closing):
        close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_ended_with_its_engine_is_known_as_such(make: Make, number: signal.Signals) -> None:
    private, world = make()
    uid = world.new_uid()
    world.running(uid)
    private.end(number)
    world.until(lambda: world.engine.observe().blind)
    private.start()
    world.until(lambda: not world.engine.observe().blind and world.state(uid) == "exited")
    assert end_of(world.only(uid), Memory(), world.engine.observe().lost).reason == "EngineLost"


def test_what_outlives_its_engine_is_not_lost(make: Make) -> None:
    private, world = make("--live-restore")
    world.until(lambda: world.engine.observe().facts.live_restore)
    uid = world.new_uid()
    before, lost = world.running(uid), world.engine.observe().lost
    private.end()
    world.until(lambda: world.engine.observe().blind)
    private.start()
    world.until(lambda: not world.engine.observe().blind)
    assert (world.only(uid).pid, world.state(uid)) == (before.pid, "running")
    assert world.engine.observe().lost == lost


def test_a_daemon_that_comes_after_the_engine_knows_it_too(make: Make) -> None:
    private, world = make()
    uid = world.new_uid()
    world.running(uid)
    world.engine.close()
    private.end()
    private.start()
    later = DockerEngine(world.instance_id, base_url=private.base_url, clock=WallClock())
    again = World(world.instance_id, later, later.streams, world.hand)
    try:
        again.settled()
        assert end_of(again.only(uid), Memory(), later.observe().lost).reason == "EngineLost"
    finally:
        later.close()
