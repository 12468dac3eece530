"""Probes on the fake and on a real Docker Engine: what an answer of a sandbox comes to."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import PauseContainer, RemoveContainer
from controller.kinds.runtime.probe import Probe, ProbeResult, Watch
from tests.contract.engine_hosts import EngineHost, docker_host, fake_host, ok


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        yield created.settled()


@pytest.fixture
def sandbox(host: EngineHost) -> Container:
    return host.running(host.new_uid())


def watch(sandbox: Container, **asked: Any) -> Watch:
    return Watch("readiness", Probe.model_validate(asked), (sandbox.id, sandbox.started_at), sandbox.pid, 0.0)


def command(host: EngineHost, sandbox: Container, *words: str, **asked: Any) -> ProbeResult:
    """In its own time, whatever else the machine does, unless a time is asked for."""
    return host.probes.probe(watch(sandbox, exec={"command": words}, **{"timeoutSeconds": 30, **asked}))


def test_a_command_that_ends_with_0_passes(host: EngineHost, sandbox: Container) -> None:
    assert command(host, sandbox, "true") == ProbeResult("success")


def test_a_command_that_fails_says_its_code_and_its_words(host: EngineHost, sandbox: Container) -> None:
    failed = command(host, sandbox, "sh", "-c", "echo not yet; exit 3")
    assert failed == ProbeResult("failure", "exit code 3: not yet")


def test_a_command_that_is_not_there_fails(host: EngineHost, sandbox: Container) -> None:
    failed = command(host, sandbox, "/no/such/command")
    assert failed.outcome == "failure"
    assert failed.message.startswith("exit code 12")


def test_a_command_that_takes_too_long_fails(host: EngineHost, sandbox: Container) -> None:
    failed = command(host, sandbox, "sleep", "1000", timeoutSeconds=1)
    assert failed == ProbeResult("failure", "no answer within 1 s; the command was killed")


def test_nobody_at_a_port_is_a_failure(host: EngineHost, sandbox: Container) -> None:
    for document in ({"tcpSocket": {"port": 8500}}, {"httpGet": {"port": 8500}}):
        assert host.probes.probe(watch(sandbox, **document)) == ProbeResult("failure", "port 8500: connection refused")


def test_a_command_in_a_frozen_sandbox_is_unknown(host: EngineHost, sandbox: Container) -> None:
    ok(host.engine.act(PauseContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))
    assert command(host, sandbox, "true").outcome == "unknown"


def test_a_sandbox_that_is_gone_is_unknown(host: EngineHost, sandbox: Container) -> None:
    ok(host.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))
    for document in ({"tcpSocket": {"port": 1}}, {"exec": {"command": ["true"]}}):
        assert host.probes.probe(watch(sandbox, **document)).outcome == "unknown"


def test_a_container_that_is_not_ours_is_not_probed(host: EngineHost, sandbox: Container) -> None:
    foreign = host.hand.add_foreign("somebody-elses-" + host.instance_id)
    answer = command(host, replace(sandbox, id=foreign), "true")
    assert answer.outcome == "unknown"
    assert "never touched" in answer.message
