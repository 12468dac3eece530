"""Part of the engine's contract that leaves a container as it is: one running sandbox for all of it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.engine.usage.cgroup import CgroupUsage
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import ReadTail, RemoveContainer, StartContainer, UpdateLimits
from controller.kinds.planning.outcome import Ok, Terminal, Transient
from controller.ports import UsageReader
from tests.contract.engine_hosts import SMALL, EngineHost, docker_host, fake_host, read_all
from tests.fakes.engine import FakeEngine


@pytest.fixture(scope="module", params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        yield created.settled()


@pytest.fixture(scope="module")
def sandbox(host: EngineHost) -> Container:
    return host.running(host.new_uid())


def test_a_second_daemon_sees_what_the_first_one_made(host: EngineHost, sandbox: Container) -> None:
    assert host.engine.observe_now(full=True).containers[sandbox.uid] == (sandbox,)


def test_the_view_stands_still_when_nothing_happens(host: EngineHost, sandbox: Container) -> None:
    host.engine.observe_now(full=True)
    before, wakes = host.engine.observe(), host.wakes
    host.engine.observe_now()
    host.engine.observe_now(full=True)
    after = host.engine.observe()
    assert after.revision == before.revision
    assert after.containers == before.containers
    assert host.wakes == wakes


def test_starting_twice(host: EngineHost, sandbox: Container) -> None:
    assert host.engine.act(StartContainer(sandbox.uid, sandbox.name, "a test", sandbox.id)) == Ok(sandbox.id)
    assert host.only(sandbox.uid) == sandbox


def test_limits_that_can_never_be_are_refused(host: EngineHost, sandbox: Container) -> None:
    outcome = host.engine.act(
        UpdateLimits(sandbox.uid, sandbox.name, sandbox.id, replace(SMALL, cpu_millicores=10_000_000), "a test")
    )
    assert isinstance(outcome, Terminal)
    assert host.only(sandbox.uid).limits == SMALL


def test_a_container_of_another_object_is_not_touched(host: EngineHost, sandbox: Container) -> None:
    outcome = host.engine.act(RemoveContainer(host.new_uid(), sandbox.name, sandbox.id, "a test"))
    assert isinstance(outcome, Transient)
    assert host.only(sandbox.uid) == sandbox


def test_usage_of_what_runs_and_of_nothing_else(host: EngineHost, sandbox: Container) -> None:
    stopped = host.made(host.new_uid())
    reader: UsageReader = host.engine if isinstance(host.engine, FakeEngine) else CgroupUsage()
    observed = reader.read([sandbox, stopped])
    assert set(observed) == {sandbox.id}
    usage = observed[sandbox.id]
    assert usage.source in ("cgroup1", "cgroup2")
    assert usage.memory_limit_bytes == SMALL.memory_bytes
    assert usage.cpu_limit_cores == SMALL.cpu_millicores / 1000
    assert usage.pids_limit == SMALL.pids
    assert 0 < usage.memory_working_set_bytes <= usage.memory_usage_bytes < SMALL.memory_bytes
    assert usage.pids >= 1
    assert usage.network is None
    if isinstance(reader, CgroupUsage):
        reader.close()


def test_exec_keeps_stdout_and_stderr_apart_and_gives_the_exit_code(host: EngineHost, sandbox: Container) -> None:
    stream = host.streams.exec(sandbox.id, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert read_all(stream) == (b"out\n", b"err\n", b"3")


def test_exec_reads_its_input_to_the_end(host: EngineHost, sandbox: Container) -> None:
    stream = host.streams.exec(sandbox.id, ["cat"], stdin=[b"one\n", b"two\n"])
    assert read_all(stream) == (b"one\ntwo\n", b"", b"0")


def test_exec_past_its_time_is_killed(host: EngineHost, sandbox: Container) -> None:
    stream = host.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"], timeout_seconds=5.0)
    chunks = list(stream)
    assert b"".join(chunk.data for chunk in chunks if chunk.stream == "stdout") == b"begun\n"
    assert [chunk.stream for chunk in chunks[-2:]] == ["timeout", "exit"]
    assert chunks[-1].data == b"124"


def test_a_terminal_is_one_stream(host: EngineHost, sandbox: Container) -> None:
    out, err, code = read_all(host.streams.exec(sandbox.id, ["sh", "-c", "echo out; echo err >&2; exit 3"], tty=True))
    assert (out.replace(b"\r", b""), err, code) == (b"out\nerr\n", b"", b"3")


def test_the_last_words_of_another_object_are_not_read(host: EngineHost, sandbox: Container) -> None:
    assert isinstance(host.engine.act(ReadTail(host.new_uid(), sandbox.name, sandbox.id, 0, "a test")), Transient)
