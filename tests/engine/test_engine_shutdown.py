"""Shutdown of an engine: it still serves open connections while its containers stop one after another.

What is begun then is left half done: a sandbox that is started is mounted where the next engine can't ever unmount it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controller.kinds.planning.action import RemoveContainer, StartContainer
from controller.kinds.planning.outcome import Ok, Waiting
from tests.contract.engine_hosts import DockerHand, EngineHost, docker_host
from tests.daemon import wait_for
from tests.lab.engine import PrivateEngine, private_engine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]
# Keeps an engine that stops for as long as `--stop-timeout` says.
STUBBORN = ("paddock/test-tiny:1", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")


@contextmanager
def ending(private: PrivateEngine) -> Iterator[None]:
    """Tell whether the engine is stopping: it no longer listens, but still runs."""
    os.kill(private.pid, signal.SIGTERM)
    wait_for("it listens no more", lambda: not private.answers())
    yield
    assert private.up, "the engine was gone too soon for this test to say anything"


def test_a_stopping_engine_starts_nothing() -> None:
    with private_engine() as private, docker_host(private.base_url, hand=DockerHand(private.base_url)) as host:
        host.settled()
        uid = host.new_uid()
        private.docker("run", "--detach", "--network", "none", "--stop-timeout", "4", *STUBBORN)
        sandbox = host.made(uid)
        with ending(private):
            outcome = host.engine.act(StartContainer(uid, sandbox.name, "a test", sandbox.id))
        assert isinstance(outcome, Waiting), outcome
        assert outcome.reason == "EngineUnreachable"
        private.end()
        private.start()
        host.until(lambda: host.state(uid) == "created")
        assert private.docker("inspect", "--format", "{{.State.StartedAt}}", sandbox.id).startswith("0001-"), (
            "never began"
        )
        starts_and_goes(host, uid)


def starts_and_goes(host: EngineHost, uid: str) -> None:
    sandbox = host.only(uid)
    wait_for("it starts", lambda: isinstance(host.engine.act(StartContainer(uid, sandbox.name, "", sandbox.id)), Ok))
    wait_for("it is gone", lambda: isinstance(host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "")), Ok))
