"""Hanging containers: they become Unknown, and all others are observed and used as before.

On an engine of the test's own: by clients that read nothing, and by a runtime that can't tell its error.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from controller.engine.engine import DockerEngine
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import RemoveContainer, SignalContainer, StartContainer
from controller.kinds.planning.outcome import Waiting
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.probe import Probe, Watch
from controller.ports import StreamError
from tests.contract.engine_hosts import DockerHand, EngineHost, WallClock, docker_host, ok, read_all
from tests.daemon import wait_for
from tests.lab.engine import PrivateEngine, private_engine
from tests.lab.hanging import TOO_LONG, answers, frozen, stalled_attach

pytestmark = [pytest.mark.docker, pytest.mark.timeout(90)]
# As in production: what hangs must not be waited for so long anywhere.
CALL_SECONDS = 200.0


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateEngine]:
    with private_engine() as created:
        yield created


@pytest.fixture
def host(private: PrivateEngine) -> Iterator[EngineHost]:
    options = {"pauses_seconds": (0.1, 0.5), "call_timeout_seconds": CALL_SECONDS, "observe_seconds": 1.0}
    with docker_host(private.base_url, hand=DockerHand(private.base_url), **options) as created:
        yield created.settled()


def several(host: EngineHost, count: int) -> list[Container]:
    return [host.running(host.new_uid()) for _ in range(count)]


def hangs(host: EngineHost, sandbox: Container) -> bool:
    return host.state(sandbox.uid) == "unknown"


def test_a_new_daemon_observes_all_but_hanging(private: PrivateEngine, host: EngineHost) -> None:
    hung, running = several(host, 3), host.running(host.new_uid())
    with frozen(private, *(container.id for container in hung)):
        later = DockerEngine(
            host.instance_id,
            base_url=private.base_url,
            clock=WallClock(),
            call_timeout_seconds=CALL_SECONDS,
            observe_seconds=1.0,
        )
        with ExitStack() as stack:
            stack.callback(later.close)
            later.open(lambda: None)
            wait_for("it sees", lambda: later.observe().at and not later.observe().blind)
            containers = later.observe().containers
            assert [container.state for container in containers[running.uid]] == [State.RUNNING]
            assert [containers[container.uid][0].state for container in hung] == [State.UNKNOWN] * 3
    for entry in hung:
        host.until(lambda each=entry: host.state(each.uid) == "exited", 60)


def test_hanging_containers_block_neither_resyncs_nor_events(private: PrivateEngine, host: EngineHost) -> None:
    stalled, stopped = host.running(host.new_uid(), command=("yes",)), *several(host, 1)
    running = host.running(host.new_uid())
    with frozen(private, stopped.id):
        for _ in range(20):
            with stalled_attach(private, stalled.id):
                now = host.engine.observe_now(full=True)
                assert not now.blind
                assert now.containers[stopped.uid][0].state is State.UNKNOWN
                assert now.containers[running.uid][0].state is State.RUNNING
                if now.containers[stalled.uid][0].state is State.UNKNOWN:
                    host.hand.kill(running.name)
                    host.until(lambda: host.state(running.uid) == "exited")
                    ok(host.engine.act(StartContainer(running.uid, running.name, "a test", running.id)))
                    assert host.state(running.uid) == "running"
                    return
            private.docker("start", stalled.id)  # the engine gave the client up
    pytest.fail("no stalled client made its container hang")


def test_calls_for_a_hanging_container_are_refused(private: PrivateEngine, host: EngineHost) -> None:
    (hung,) = several(host, 1)
    removal = RemoveContainer(hung.uid, hung.name, hung.id, "a test")
    with frozen(private, hung.id):
        host.engine.observe_now(full=True)
        assert hangs(host, hung)
        outcome = host.engine.act(removal)
        assert isinstance(outcome, Waiting)
        assert outcome.reason == "Unreadable"
        assert isinstance(host.engine.act(SignalContainer(hung.uid, hung.name, hung.id, "KILL", "a test")), Waiting)
        for ask in (lambda: host.streams.exec(hung.id, ["true"]), lambda: host.streams.logs(hung.id)):
            with pytest.raises(StreamError, match="does not answer for it"):
                ask()
        assert "does not answer for it" in host.engine.observe_container(hung.id)
    host.until(lambda: host.state(hung.uid) == "exited", 60)
    ok(host.engine.act(removal))
    assert host.view(hung.uid) == ()


@pytest.mark.parametrize("where", ["program", "folder"])
def test_a_command_with_a_stuck_error_is_killed(private: PrivateEngine, host: EngineHost, where: str) -> None:
    sandbox = host.running(host.new_uid())
    program, folder = (TOO_LONG, "") if where == "program" else ("true", TOO_LONG)
    _, answer, code = read_all(host.streams.exec(sandbox.id, [program], working_dir=folder))
    assert answer.startswith((b"executable ", b"working folder ", b"exec", b"chdir"))
    assert code in (b"126", b"127", b"128")  # as the engine has it
    assert answers(private, sandbox.id, 10)
    host.until(lambda: host.state(sandbox.uid) == "running")
    assert read_all(host.streams.exec(sandbox.id, ["echo", "hello"]))[0] == b"hello\n"


def test_a_probe_with_a_stuck_error_fails(host: EngineHost) -> None:
    sandbox = host.running(host.new_uid())
    probe = Probe.model_validate({"exec": {"command": ["true"]}, "timeoutSeconds": 60})
    assert probe.exec is not None
    stored = probe.exec.model_copy(update={"command": (TOO_LONG,)})  # as an older daemon stored it
    watch = Watch(
        "liveness", probe.model_copy(update={"exec": stored}), (sandbox.id, sandbox.started_at), sandbox.pid, 0.0
    )
    assert host.probes.probe(watch).outcome == "failure"
    host.until(lambda: host.state(sandbox.uid) == "running")


@pytest.mark.skipif("PADDOCK_TEST_NEWER" in os.environ, reason="newer engines answer all the same")
def test_a_stuck_out_of_band_exec_is_killed(private: PrivateEngine, host: EngineHost) -> None:
    sandbox = host.running(host.new_uid(), limits=Limits(cpu_millicores=500, memory_bytes=64 << 20, pids=64))
    requested = ["docker", "-H", private.base_url, "exec", sandbox.id, TOO_LONG]
    with subprocess.Popen(requested, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as out_of_band:
        wait_for("it hangs", lambda: not answers(private, sandbox.id))
        host.engine.observe_now(full=True)
        assert out_of_band.wait(60) in (126, 127)
    host.until(lambda: host.state(sandbox.uid) == "running")
    ok(host.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))
