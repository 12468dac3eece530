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
from tests.contract.engine_hosts import DockerHand, EngineHost, WallClock, docker_host, ok
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
def host_of(private: PrivateEngine) -> Iterator[EngineHost]:
    options = {"pauses_seconds": (0.1, 0.5), "call_timeout_seconds": 3}
    with docker_host(private.base_url, hand=DockerHand(private.base_url), **options) as host:
        yield host.settled()


@pytest.fixture
def host(private: PrivateEngine) -> Iterator[EngineHost]:
    with host_of(private) as host:
        yield host


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_exits_due_to_the_engine_are_known(private: PrivateEngine, host: EngineHost, number: signal.Signals) -> None:
    uid = host.new_uid()
    host.running(uid)
    private.end(number)
    host.until(lambda: host.engine.observe().blind)
    private.start()
    host.until(lambda: not host.engine.observe().blind and host.state(uid) == "exited", 60)
    assert end_of(host.only(uid), instance_state(), host.engine.observe().lost).reason == "EngineLost"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_outlives_its_engine_is_not_lost(restoring: PrivateEngine, number: signal.Signals) -> None:
    with host_of(restoring) as host:
        host.until(lambda: host.engine.observe().facts.live_restore)
        uid = host.new_uid()
        before, lost = host.running(uid), host.engine.observe().lost
        restoring.end(number)
        host.until(lambda: host.engine.observe().blind)
        restoring.start()
        host.until(lambda: not host.engine.observe().blind, 60)
        assert (host.only(uid).pid, host.state(uid)) == (before.pid, "running")
        assert host.engine.observe().lost == lost


def test_exits_due_to_the_host_are_known(private: PrivateEngine, host: EngineHost) -> None:
    uid = host.new_uid()
    host.running(uid)
    private.crash_host()
    host.until(lambda: host.engine.observe().blind)
    private.start()
    host.until(lambda: not host.engine.observe().blind and host.state(uid) == "exited", 60)
    assert end_of(host.only(uid), instance_state(), host.engine.observe().lost).reason == "EngineLost"


def test_a_later_daemon_knows_the_downtime(private: PrivateEngine, host: EngineHost) -> None:
    uid = host.new_uid()
    host.running(uid)
    host.engine.close()
    private.end()
    private.start()
    later = DockerEngine(host.instance_id, base_url=private.base_url, clock=WallClock())
    again = EngineHost(host.instance_id, later, later.streams, host.hand)
    try:
        again.settled()
        assert end_of(again.only(uid), instance_state(), later.observe().lost).reason == "EngineLost"
    finally:
        later.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_silent_engine_is_unknown_not_empty(private: PrivateEngine, host: EngineHost, number: signal.Signals) -> None:
    uid = host.new_uid()
    host.running(uid)
    before = host.engine.observe().containers
    private.freeze() if number == signal.SIGSTOP else private.end(number)
    host.engine.request_observation()
    host.until(lambda: host.engine.observe().blind, 60)
    assert host.engine.observe().containers.keys() == before.keys()
    private.thaw() if number == signal.SIGSTOP else private.start()
    host.until(lambda: not host.engine.observe().blind, 60)
    assert host.view(uid)


def test_a_start_that_the_engines_death_cut_off_is_blocked_until_its_container_is_removed(
    private: PrivateEngine, host: EngineHost
) -> None:
    uid = host.new_uid()
    box = host.made(uid)
    start = StartContainer(uid, box.name, "a test", box.id)
    with ThreadPoolExecutor(1) as thread:
        cut_off = thread.submit(host.engine.act, start)
        wait_for("its shim runs", lambda: shims(box.id))
        private.end(signal.SIGKILL)
        assert not isinstance(cut_off.result(60), Ok)
    private.start()
    host.until(lambda: not host.engine.observe().blind, 60)
    for _ in range(2):
        blocked = host.engine.act(start)
        if NEWER and isinstance(blocked, Ok):
            return  # newer engines clear it away themselves
        assert isinstance(blocked, Transient), "the engine holds no rest of it any more: then nothing is recreated"
        assert blocked.reason == START_BLOCKED
    ok(host.engine.act(RemoveContainer(uid, box.name, box.id, "a test")))
    assert host.running(uid).id != box.id


def shims(container_id: str) -> list[Path]:
    """Return the processes whose command line names the container."""
    observed = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if container_id.encode() in line.read_bytes():
                observed.append(line)
    return observed
