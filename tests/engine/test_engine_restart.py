"""Restarts and kills of an engine, and their effect on containers; on a private engine."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.engine.engine import DockerEngine
from controller.kinds.planning.action import RemoveContainer, StartContainer
from controller.kinds.planning.outcome import START_BLOCKED, Ok, Transient
from controller.plan.sandbox.deaths import end_of
from tests.contract.engine_worlds import DockerHand, WallClock, World, docker_world, ok
from tests.daemon import wait_for
from tests.instance_states import instance_state
from tests.lab.engine import PrivateEngine, private_engine

NEWER = "PADDOCK_TEST_NEWER" in os.environ  # a later Debian's engine, in a lab
pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateEngine]:
    """Start an engine that is up again after each test."""
    with private_engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def restoring() -> Iterator[PrivateEngine]:
    with private_engine("--live-restore") as engine:
        yield engine


@contextmanager
def world_of(private: PrivateEngine) -> Iterator[World]:
    options = {"pauses_seconds": (0.1, 0.5), "call_timeout_seconds": 3}
    with docker_world(private.base_url, hand=DockerHand(private.base_url), **options) as world:
        yield world.settled()


@pytest.fixture
def world(private: PrivateEngine) -> Iterator[World]:
    with world_of(private) as world:
        yield world


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_exits_due_to_the_engine_are_known(private: PrivateEngine, world: World, number: signal.Signals) -> None:
    uid = world.new_uid()
    world.running(uid)
    private.end(number)
    world.until(lambda: world.engine.observe().blind)
    private.start()
    world.until(lambda: not world.engine.observe().blind and world.state(uid) == "exited", 60)
    assert end_of(world.only(uid), instance_state(), world.engine.observe().lost).reason == "EngineLost"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_outlives_its_engine_is_not_lost(restoring: PrivateEngine, number: signal.Signals) -> None:
    with world_of(restoring) as world:
        world.until(lambda: world.engine.observe().facts.live_restore)
        uid = world.new_uid()
        before, lost = world.running(uid), world.engine.observe().lost
        restoring.end(number)
        world.until(lambda: world.engine.observe().blind)
        restoring.start()
        world.until(lambda: not world.engine.observe().blind, 60)
        assert (world.only(uid).pid, world.state(uid)) == (before.pid, "running")
        assert world.engine.observe().lost == lost


def test_exits_due_to_the_host_are_known(private: PrivateEngine, world: World) -> None:
    uid = world.new_uid()
    world.running(uid)
    private.crash_host()
    world.until(lambda: world.engine.observe().blind)
    private.start()
    world.until(lambda: not world.engine.observe().blind and world.state(uid) == "exited", 60)
    assert end_of(world.only(uid), instance_state(), world.engine.observe().lost).reason == "EngineLost"


def test_a_later_daemon_knows_the_downtime(private: PrivateEngine, world: World) -> None:
    uid = world.new_uid()
    world.running(uid)
    world.engine.close()
    private.end()
    private.start()
    later = DockerEngine(world.instance_id, base_url=private.base_url, clock=WallClock())
    again = World(world.instance_id, later, later.streams, world.hand)
    try:
        again.settled()
        assert end_of(again.only(uid), instance_state(), later.observe().lost).reason == "EngineLost"
    finally:
        later.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_silent_engine_is_unknown_not_empty(private: PrivateEngine, world: World, number: signal.Signals) -> None:
    uid = world.new_uid()
    world.running(uid)
    before = world.engine.observe().containers
    private.freeze() if number == signal.SIGSTOP else private.end(number)
    world.engine.request_observation()
    world.until(lambda: world.engine.observe().blind, 60)
    assert world.engine.observe().containers.keys() == before.keys()
    private.thaw() if number == signal.SIGSTOP else private.start()
    world.until(lambda: not world.engine.observe().blind, 60)
    assert world.view(uid)


def test_a_start_that_the_engines_death_cut_off_is_blocked_until_its_container_is_removed(
    private: PrivateEngine, world: World
) -> None:
    uid = world.new_uid()
    box = world.made(uid)
    start = StartContainer(uid, box.name, "a test", box.id)
    with ThreadPoolExecutor(1) as thread:
        cut_off = thread.submit(world.engine.act, start)
        wait_for("its shim runs", lambda: shims(box.id))
        private.end(signal.SIGKILL)
        assert not isinstance(cut_off.result(60), Ok)
    private.start()
    world.until(lambda: not world.engine.observe().blind, 60)
    for _ in range(2):
        blocked = world.engine.act(start)
        if NEWER and isinstance(blocked, Ok):
            return  # newer engines clear it away themselves
        assert isinstance(blocked, Transient), "the engine holds no rest of it any more: then nothing is recreated"
        assert blocked.reason == START_BLOCKED
    ok(world.engine.act(RemoveContainer(uid, box.name, box.id, "a test")))
    assert world.running(uid).id != box.id


def shims(container_id: str) -> list[Path]:
    """Return the processes whose command line names the container."""
    observed = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if container_id.encode() in line.read_bytes():
                observed.append(line)
    return observed
